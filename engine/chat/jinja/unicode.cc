#include "engine/chat/jinja/unicode.h"

#include <utf8proc.h>

#include <algorithm>

namespace trimtab::jinja {
namespace {

utf8proc_category_t CategoryOf(uint32_t code) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(code));
}

}  // namespace

Character CharacterAt(std::string_view text, size_t position) {
  utf8proc_int32_t code = 0;
  const auto* bytes = reinterpret_cast<const utf8proc_uint8_t*>(text.data()) + position;
  const auto rest = static_cast<utf8proc_ssize_t>(text.size() - position);
  const utf8proc_ssize_t length = utf8proc_iterate(bytes, rest, &code);
  if (length <= 0) return {static_cast<unsigned char>(text[position]), 1};
  return {static_cast<uint32_t>(code), static_cast<size_t>(length)};
}

void AppendCharacter(uint32_t code, std::string& text) {
  utf8proc_uint8_t bytes[4];
  const utf8proc_ssize_t length = utf8proc_encode_char(static_cast<utf8proc_int32_t>(code), bytes);
  text.append(reinterpret_cast<const char*>(bytes), static_cast<size_t>(length));
}

size_t CharacterCount(std::string_view text) {
  size_t count = 0;
  for (size_t at = 0; at < text.size(); at += CharacterAt(text, at).bytes) ++count;
  return count;
}

size_t ByteOffset(std::string_view text, size_t index) {
  size_t at = 0;
  for (; index > 0 && at < text.size(); --index) at += CharacterAt(text, at).bytes;
  return at;
}

bool IsUtf8(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    utf8proc_int32_t code = 0;
    const auto* bytes = reinterpret_cast<const utf8proc_uint8_t*>(text.data()) + at;
    const auto rest = static_cast<utf8proc_ssize_t>(text.size() - at);
    const utf8proc_ssize_t length = utf8proc_iterate(bytes, rest, &code);
    if (length <= 0) return false;
    at += static_cast<size_t>(length);
  }
  return true;
}

bool IsSpace(uint32_t code) {
  return (code >= 0x09 && code <= 0x0D) || (code >= 0x1C && code <= 0x20) || code == 0x85 ||
         code == 0xA0 || code == 0x1680 || (code >= 0x2000 && code <= 0x200A) || code == 0x2028 ||
         code == 0x2029 || code == 0x202F || code == 0x205F || code == 0x3000;
}

bool IsUpper(uint32_t code) { return CategoryOf(code) == UTF8PROC_CATEGORY_LU; }
bool IsLower(uint32_t code) { return CategoryOf(code) == UTF8PROC_CATEGORY_LL; }

bool IsLetter(uint32_t code) {
  const utf8proc_category_t category = CategoryOf(code);
  return category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO;
}

bool IsDigit(uint32_t code) { return CategoryOf(code) == UTF8PROC_CATEGORY_ND; }

bool IsWordCharacter(uint32_t code) {
  const utf8proc_category_t category = CategoryOf(code);
  return code == '_' || IsLetter(code) ||
         (category >= UTF8PROC_CATEGORY_ND && category <= UTF8PROC_CATEGORY_NO);
}

bool IsPrintable(uint32_t code) {
  const utf8proc_category_t category = CategoryOf(code);
  if (code == ' ') return true;
  return category != UTF8PROC_CATEGORY_CN && category < UTF8PROC_CATEGORY_ZS;
}

std::string UpperOf(uint32_t code) {
  if (code == 0xDF) return "SS";
  std::string text;
  AppendCharacter(static_cast<uint32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(code))),
                  text);
  return text;
}

std::string LowerOf(uint32_t code) {
  std::string text;
  AppendCharacter(static_cast<uint32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(code))),
                  text);
  return text;
}

Text MapCharacters(const Text& text, const std::function<std::string(size_t, uint32_t)>& map) {
  Text mapped;
  size_t index = 0;
  for (size_t at = 0; at < text.size();) {
    const Character character = CharacterAt(text.bytes(), at);
    mapped.Append(map(index++, character.code), text.MarksAt(at));
    at += character.bytes;
  }
  return mapped;
}

void ForEachCharacter(std::string_view text, const std::function<void(uint32_t, size_t)>& visit) {
  for (size_t at = 0; at < text.size();) {
    const Character character = CharacterAt(text, at);
    visit(character.code, at);
    at += character.bytes;
  }
}

}  // namespace trimtab::jinja
