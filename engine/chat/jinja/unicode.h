// Characters of UTF-8 as Python's str counts, classifies and changes them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "engine/chat/jinja/text.h"

namespace trimtab::jinja {

/// One character and the bytes that write it.
struct Character {
  uint32_t code = 0;
  size_t bytes = 1;
};

/// Returns the character at byte `position`. A byte that is no UTF-8 is a character of its own.
Character CharacterAt(std::string_view text, size_t position);
void AppendCharacter(uint32_t code, std::string& text);

/// Returns the number of characters.
size_t CharacterCount(std::string_view text);
/// Returns the byte at which character `index` begins; the size where there are fewer.
size_t ByteOffset(std::string_view text, size_t index);
/// Returns true for strict UTF-8.
bool IsUtf8(std::string_view text);

bool IsSpace(uint32_t code);
bool IsUpper(uint32_t code);
bool IsLower(uint32_t code);
/// Returns true for letters, digits and the underscore, as `\w` does.
bool IsWordCharacter(uint32_t code);
bool IsLetter(uint32_t code);
bool IsDigit(uint32_t code);
bool IsPrintable(uint32_t code);

std::string UpperOf(uint32_t code);
std::string LowerOf(uint32_t code);

/// Calls `map` with every character's index among the characters and code, and returns what it
/// returns, with the character's marks.
Text MapCharacters(const Text& text, const std::function<std::string(size_t, uint32_t)>& map);

/// Calls `visit` with each character's code and the byte at which it begins.
void ForEachCharacter(std::string_view text, const std::function<void(uint32_t, size_t)>& visit);

}  // namespace trimtab::jinja
