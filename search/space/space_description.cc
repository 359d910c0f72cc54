#include "search/space/space_description.h"

#include <algorithm>

#include "search/space/space_tree.h"

namespace trimtab {

SpaceDescription DescribeSpace(const Problem& problem) {
  SpaceDescription space;
  space.counts = WalkSpace(problem);
  const std::vector<std::vector<std::string>> values = SpaceTree(problem).ValuesByRow();
  for (size_t i = 0; i < values.size(); ++i) {
    const std::string name = SpaceRows()[i].name;
    const auto same = std::find_if(space.dimensions.begin(), space.dimensions.end(),
                                   [&](const auto& each) { return each.name == name; });
    if (same == space.dimensions.end()) {
      space.dimensions.push_back({name, values[i]});
    } else {
      same->values = values[i];  // the first step knew less
    }
  }
  return space;
}

}  // namespace trimtab
