#include "engine/chat/jinja/string_literal.h"

#include <charconv>
#include <cstdint>

#include "engine/chat/jinja/unicode.h"

namespace trimtab::jinja {
namespace {

constexpr std::string_view kPlainEscapes = "abfnrtv\\'\"";
constexpr std::string_view kPlainMeanings = "\a\b\f\n\r\t\v\\'\"";

}  // namespace

std::string Unescape(std::string_view literal, std::string& text) {
  for (size_t at = 0; at < literal.size(); ++at) {
    if (literal[at] != '\\' || at + 1 == literal.size()) {
      text += literal[at];
      continue;
    }
    const char escape = literal[++at];
    const size_t plain = kPlainEscapes.find(escape);
    if (plain != std::string_view::npos) {
      text += kPlainMeanings[plain];
      continue;
    }
    if (escape == '\n') continue;
    const bool octal = escape >= '0' && escape <= '7';
    const size_t digits = escape == 'x' ? 2 : escape == 'u' ? 4 : escape == 'U' ? 8 : octal ? 3 : 0;
    if (escape == 'N') return "\\N{...} is not read in strings";
    if (digits == 0) {
      text += '\\';
      text += escape;
      continue;
    }
    const char* begin = literal.data() + at + (octal ? 0 : 1);
    const char* limit = literal.data() + literal.size();
    if (limit - begin > static_cast<std::ptrdiff_t>(digits)) limit = begin + digits;
    uint32_t code = 0;
    const auto [last, error] = std::from_chars(begin, limit, code, octal ? 8 : 16);
    const auto read = static_cast<size_t>(last - begin);
    if (error != std::errc() || (!octal && read != digits)) return "a broken \\x, \\u or \\U";
    if (code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) {
      return "an escape that is no character";
    }
    AppendCharacter(code, text);
    at = static_cast<size_t>(last - literal.data()) - 1;
  }
  return "";
}

}  // namespace trimtab::jinja
