#include "engine/data/vocabulary/special_tokens.h"

#include <algorithm>
#include <utility>

#include "engine/base/error.h"

namespace trimtab {

void SpecialTokens::Add(std::string name, int32_t id) {
  TRIMTAB_ASSERT(!name.empty(), "a special token without a name");
  std::vector<Entry>& entries = entries_[static_cast<unsigned char>(name[0])];
  for (Entry& entry : entries) {
    if (entry.name != name) continue;
    entry.id = id;
    return;
  }
  const auto place = std::find_if(entries.begin(), entries.end(), [&](const Entry& entry) {
    return entry.name.size() < name.size();
  });
  entries.insert(place, {std::move(name), id});
  ++count_;
}

std::optional<int32_t> SpecialTokens::Find(std::string_view name) const {
  if (name.empty()) return std::nullopt;
  for (const Entry& entry : entries_[static_cast<unsigned char>(name[0])]) {
    if (entry.name == name) return entry.id;
  }
  return std::nullopt;
}

void SpecialTokens::Split(std::string_view input, const std::function<void(std::string_view)>& text,
                          const std::function<void(int32_t)>& token) const {
  size_t begin = 0;
  const auto flush = [&](size_t end) {
    if (end > begin) text(input.substr(begin, end - begin));
  };
  size_t at = 0;
  while (!empty() && at < input.size()) {
    const std::vector<Entry>& entries = entries_[static_cast<unsigned char>(input[at])];
    const auto found = std::find_if(entries.begin(), entries.end(), [&](const Entry& entry) {
      return input.substr(at).starts_with(entry.name);
    });
    if (found == entries.end()) {
      ++at;
      continue;
    }
    flush(at);
    token(found->id);
    at += found->name.size();
    begin = at;
  }
  flush(input.size());
}

}  // namespace trimtab
