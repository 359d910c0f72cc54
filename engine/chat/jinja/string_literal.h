// Backslashes in the strings of templates.
#pragma once

#include <string>
#include <string_view>

namespace trimtab::jinja {

/// Appends what `literal`, between its quotes, says. Returns what is wrong with it; empty if
/// nothing is.
std::string Unescape(std::string_view literal, std::string& text);

}  // namespace trimtab::jinja
