#include "engine/data/vocabulary/special_tokens.h"

#include <algorithm>
#include <utility>

#include "engine/base/error.h"
#include "engine/data/vocabulary/characters.h"

namespace trimtab {
namespace {

/// True if no part of a word touches bytes [begin, end) of `text`.
bool IsWholeWord(std::string_view text, size_t begin, size_t end) {
  if (begin > 0 && IsWordCharacter(LastCharacter(text.substr(0, begin)).code)) return false;
  return end == text.size() || !IsWordCharacter(CharacterAt(text, end).code);
}

}  // namespace

void SpecialTokens::Add(std::string name, int32_t id, NameRules rules) {
  TRIMTAB_ASSERT(!name.empty(), "a special token without a name");
  std::vector<size_t>& sizes = sizes_[static_cast<unsigned char>(name[0])];
  const auto place = std::ranges::lower_bound(sizes, name.size(), std::greater<>());
  if (place == sizes.end() || *place != name.size()) sizes.insert(place, name.size());
  entries_.insert_or_assign(std::move(name), Entry{id, rules});
}

std::optional<int32_t> SpecialTokens::Find(std::string_view name) const {
  const auto found = entries_.find(name);
  if (found == entries_.end()) return std::nullopt;
  return found->second.id;
}

SpecialTokens::Entries::const_iterator SpecialTokens::LongestAt(std::string_view rest) const {
  for (const size_t size : sizes_[static_cast<unsigned char>(rest[0])]) {
    if (size > rest.size()) continue;
    const auto found = entries_.find(rest.substr(0, size));
    if (found != entries_.end()) return found;
  }
  return entries_.end();
}

void SpecialTokens::Split(std::string_view input, const std::function<void(std::string_view)>& text,
                          const std::function<void(int32_t)>& token) const {
  size_t done = 0;
  size_t at = 0;
  while (!empty() && at < input.size()) {
    const auto found = LongestAt(input.substr(at));
    if (found == entries_.end()) {
      ++at;
      continue;
    }
    const auto& [name, entry] = *found;
    size_t begin = at;
    size_t end = at + name.size();
    at = end;
    if (entry.rules.whole_word && !IsWholeWord(input, begin, end)) continue;
    // Space that the name before it has taken is gone, but for names that stand in it.
    if (entry.rules.takes_space_before) {
      begin = std::max(done, begin - TrailingSpace(input.substr(0, begin)));
    }
    if (entry.rules.takes_space_behind) end += LeadingSpace(input.substr(end));
    if (begin > done) text(input.substr(done, begin - done));
    token(entry.id);
    done = end;
  }
  if (done < input.size()) text(input.substr(done));
}

}  // namespace trimtab
