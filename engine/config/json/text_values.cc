#include "engine/config/json/text_values.h"

#include <charconv>

namespace trimtab {

std::vector<std::string> Split(std::string_view text, char separator) {
  std::vector<std::string> parts(1);
  for (const char c : text) {
    if (c == separator) {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  return parts;
}

bool ParseInteger(std::string_view text, int64_t& value) {
  int64_t parsed = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, parsed);
  if (error != std::errc() || stop != end || text.empty()) return false;
  value = parsed;
  return true;
}

}  // namespace trimtab
