// Text that keeps to a width.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace trimtab {

/// The widest line that is printed for people.
inline constexpr size_t kMostColumns = 100;

/// Counts the characters of UTF-8 text that a terminal shows: escape sequences of colours are none.
size_t DisplayWidth(std::string_view text);

/// Pads `text` with blanks behind it to `width` columns.
std::string PadRight(const std::string& text, size_t width);
/// Pads `text` with blanks before it to `width` columns.
std::string PadLeft(const std::string& text, size_t width);

/// Breaks `text` at blanks into lines of at most `width` columns. A longer word is broken after a
/// comma, a plus or a slash, or else where the line ends.
std::vector<std::string> WrapWords(std::string_view text, size_t width);

/// Wraps each line of `text` that is wider than `width`. What goes on is indented as far as the
/// line's last column, which two blanks set off: "  name  meaning". A line without columns goes on
/// two blanks further in.
std::string WrapColumns(std::string_view text, size_t width = kMostColumns);

}  // namespace trimtab
