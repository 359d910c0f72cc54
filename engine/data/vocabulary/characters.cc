#include "engine/data/vocabulary/characters.h"

#include <utf8proc.h>

#include <algorithm>

namespace trimtab {

Character CharacterAt(std::string_view text, size_t at) {
  utf8proc_int32_t code = -1;
  const utf8proc_ssize_t size =
      utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(text.data()) + at,
                       static_cast<utf8proc_ssize_t>(text.size() - at), &code);
  if (size <= 0) return {};
  return {code, static_cast<size_t>(size)};
}

Character LastCharacter(std::string_view text) {
  for (size_t bytes = 1; bytes <= std::min<size_t>(4, text.size()); ++bytes) {
    const Character character = CharacterAt(text, text.size() - bytes);
    if (character.bytes == bytes && character.code >= 0) return character;
  }
  return {};
}

bool IsWhiteSpace(int32_t code) {
  return (code >= 0x09 && code <= 0x0D) || code == 0x20 || code == 0x85 || code == 0xA0 ||
         code == 0x1680 || (code >= 0x2000 && code <= 0x200A) || code == 0x2028 || code == 0x2029 ||
         code == 0x202F || code == 0x205F || code == 0x3000;
}

bool IsMark(int32_t code) {
  if (code < 0) return false;
  const utf8proc_category_t category = utf8proc_category(code);
  return category == UTF8PROC_CATEGORY_MN || category == UTF8PROC_CATEGORY_MC ||
         category == UTF8PROC_CATEGORY_ME;
}

bool IsWordCharacter(int32_t code) {
  if (code < 0) return false;
  switch (utf8proc_category(code)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_PC:
      return true;
    default:
      // Joiners, and letters in circles and squares, which are alphabetic symbols.
      return IsMark(code) || code == 0x200C || code == 0x200D ||
             (code >= 0x24B6 && code <= 0x24E9) || (code >= 0x1F130 && code <= 0x1F149) ||
             (code >= 0x1F150 && code <= 0x1F169) || (code >= 0x1F170 && code <= 0x1F189);
  }
}

size_t LeadingSpace(std::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    const Character character = CharacterAt(text, at);
    if (!IsWhiteSpace(character.code)) break;
    at += character.bytes;
  }
  return at;
}

size_t TrailingSpace(std::string_view text) {
  size_t end = text.size();
  while (end > 0) {
    const Character character = LastCharacter(text.substr(0, end));
    if (!IsWhiteSpace(character.code)) break;
    end -= character.bytes;
  }
  return text.size() - end;
}

}  // namespace trimtab
