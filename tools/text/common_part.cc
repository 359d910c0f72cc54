#include "tools/text/common_part.h"

#include <algorithm>

#include "engine/config/json/text_values.h"

namespace trimtab {
namespace {

void Append(const std::string& pair, std::string& layout) {
  if (!layout.empty()) layout += ',';
  layout += pair;
}

}  // namespace

CommonPart SplitCommonPart(const std::vector<std::string>& layouts, size_t longest) {
  const bool is_short = std::ranges::all_of(
      layouts, [&](const std::string& layout) { return layout.size() <= longest; });
  if (layouts.size() < 2 || is_short) return {.common = "", .rest = layouts};
  std::vector<std::vector<std::string>> split;
  for (const std::string& layout : layouts) split.push_back(Split(layout, ','));
  const auto is_common = [&](const std::string& pair) {
    return std::ranges::all_of(split, [&](const std::vector<std::string>& pairs) {
      return std::ranges::find(pairs, pair) != pairs.end();
    });
  };
  CommonPart parts;
  for (const std::string& pair : split.front()) {
    if (is_common(pair)) Append(pair, parts.common);
  }
  for (const std::vector<std::string>& pairs : split) {
    std::string& rest = parts.rest.emplace_back();
    for (const std::string& pair : pairs) {
      if (!is_common(pair)) Append(pair, rest);
    }
    if (rest.empty()) rest.assign(1, '-');
  }
  return parts;
}

}  // namespace trimtab
