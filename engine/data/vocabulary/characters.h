// Characters of a text in UTF-8, by the classes that the rules of vocabularies name.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace trimtab {

/// A character, and how many bytes it takes. `code` is -1 for a byte that is not UTF-8.
struct Character {
  int32_t code = -1;
  size_t bytes = 1;
};

/// Returns the character at byte `at`, which must be inside `text`.
Character CharacterAt(std::string_view text, size_t at);
/// Returns the last character of `text`, which must not be empty.
Character LastCharacter(std::string_view text);

/// True for Unicode's White_Space.
bool IsWhiteSpace(int32_t code);
/// True for what a word is made of: letters, marks, decimal digits and connectors (`\w`).
bool IsWordCharacter(int32_t code);
/// True for combining marks of any kind.
bool IsMark(int32_t code);

/// Returns how many bytes of white space `text` begins with.
size_t LeadingSpace(std::string_view text);
/// Returns how many bytes of white space `text` ends with.
size_t TrailingSpace(std::string_view text);

}  // namespace trimtab
