// Pieces of the text that values of a layout are written in.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace trimtab {

/// The parts of `text` between separators: one more than there are separators.
std::vector<std::string> Split(std::string_view text, char separator);

/// The value of a decimal integer that fills all of `text`; false, and `value` as it was, if that
/// is none or does not fit.
bool ParseInteger(std::string_view text, int64_t& value);

}  // namespace trimtab
