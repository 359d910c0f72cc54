// What Python's str can do, over texts whose marks are kept.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "engine/chat/jinja/text.h"

namespace trimtab::jinja {

enum class Side { kLeft = 1, kRight = 2, kBoth = 3 };

/// str.strip, lstrip, rstrip: of the characters of `characters`, or of white space.
Text Strip(const Text& text, Side side, const std::optional<Text>& characters);

/// str.split(separator, limit), or on white space; a negative limit is none. Throws Failure for an
/// empty separator.
std::vector<Text> Split(const Text& text, const std::optional<Text>& separator, int64_t limit);
/// str.rsplit.
std::vector<Text> SplitFromRight(const Text& text, const std::optional<Text>& separator,
                                 int64_t limit);
std::vector<Text> SplitLines(const Text& text, bool keep_ends);

/// str.replace; a negative count is all.
Text Replace(const Text& text, const Text& old, const Text& by, int64_t count);
Text Upper(const Text& text);
Text Lower(const Text& text);
/// str.capitalize.
Text Capitalize(const Text& text);
/// str.title.
Text Title(const Text& text);

Text Join(const Text& separator, const std::vector<Text>& parts);

}  // namespace trimtab::jinja
