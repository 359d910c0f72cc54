#include "engine/chat/encode_text.h"

#include <algorithm>
#include <array>
#include <string_view>

namespace trimtab {
namespace {

/// True if a byte from `begin` to `end` came with the request.
bool HasInput(const jinja::Text& text, size_t begin, size_t end) {
  auto run = std::ranges::upper_bound(text.runs(), begin, {}, &jinja::Text::Run::end);
  for (; begin < end; begin = run->end, ++run) {
    if ((run->marks & jinja::kInput) != 0) return true;
  }
  return false;
}

}  // namespace

std::vector<SpecialPlace> FindSpecials(const jinja::Text& text,
                                       const std::vector<std::string>& names,
                                       const Tokenizer& tokenizer) {
  std::array<std::vector<std::string_view>, 256> by_first;
  for (const std::string& name : names) {
    if (!name.empty()) by_first[static_cast<unsigned char>(name[0])].push_back(name);
  }
  for (auto& some : by_first) {
    std::ranges::sort(some, std::ranges::greater(), &std::string_view::size);
  }
  std::vector<SpecialPlace> places;
  const std::string_view bytes = text.bytes();
  for (size_t at = 0; at < bytes.size();) {
    size_t next = at + 1;
    for (const std::string_view name : by_first[static_cast<unsigned char>(bytes[at])]) {
      if (!bytes.substr(at).starts_with(name)) continue;
      const bool forged = HasInput(text, at, at + name.size());
      places.push_back({at, at + name.size(), *tokenizer.SpecialId(name), forged});
      if (forged) continue;
      next = at + name.size();
      break;
    }
    at = next;
  }
  return places;
}

void EncodeText(const jinja::Text& text, const std::vector<std::string>& special_names,
                const Tokenizer& tokenizer, std::vector<int32_t>& tokens) {
  const std::vector<SpecialPlace> places = FindSpecials(text, special_names, tokenizer);
  if (std::ranges::none_of(places, &SpecialPlace::forged)) {
    // As a whole: a tokenizer may treat the beginning of a text differently.
    tokenizer.Encode(text.bytes(), SpecialNames::kTokens, tokens);
    return;
  }
  const std::string_view bytes = text.bytes();
  size_t begin = 0;
  const auto encode_until = [&](size_t end) {
    if (end > begin) tokenizer.Encode(bytes.substr(begin, end - begin), tokens);
  };
  for (const SpecialPlace& place : places) {
    if (place.forged) continue;
    encode_until(place.begin);
    tokens.push_back(place.id);
    begin = place.end;
  }
  encode_until(bytes.size());
}

}  // namespace trimtab
