#include "cost_model/validation/published_words.h"

#include <vector>

#include "engine/base/plain_name.h"

namespace trimtab {

std::optional<std::string> MeaningOf(std::string_view text, std::span<const Meaning> meanings) {
  const std::vector<std::string> words = PlainWords(text);
  for (const Meaning& each : meanings) {
    if (FindPlainName(words, each.said) < words.size()) return std::string(each.means);
  }
  return std::nullopt;
}

}  // namespace trimtab
