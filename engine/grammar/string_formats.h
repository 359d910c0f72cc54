// Formats of strings that JSON schemas name.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace trimtab {

/// The regular expression of a format, of a whole text; nothing if it is not known.
std::optional<std::string> FormatPattern(std::string_view format);

/// "date, date-time, ...": those that are known.
std::string FormatNames();

}  // namespace trimtab
