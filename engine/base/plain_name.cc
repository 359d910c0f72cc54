#include "engine/base/plain_name.h"

namespace trimtab {

std::vector<std::string> PlainWords(std::string_view text) {
  std::vector<std::string> words;
  bool inside = false;
  for (const char c : text) {
    const bool upper = c >= 'A' && c <= 'Z';
    const bool plain = upper || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
    if (plain && !inside) words.emplace_back();
    if (plain) words.back() += upper ? static_cast<char>(c - 'A' + 'a') : c;
    inside = plain;
  }
  return words;
}

std::string PlainName(std::string_view text) {
  std::string name;
  for (const std::string& word : PlainWords(text)) name += word;
  return name;
}

size_t FindPlainName(const std::vector<std::string>& words, std::string_view plain_name) {
  for (size_t first = 0; first < words.size(); ++first) {
    std::string_view left = plain_name;
    for (size_t i = first; i < words.size() && !left.empty() && left.starts_with(words[i]); ++i) {
      left.remove_prefix(words[i].size());
    }
    if (left.empty()) return first;
  }
  return words.size();
}

}  // namespace trimtab
