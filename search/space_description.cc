#include "search/space_description.h"

#include "search/space_tree.h"

namespace trimtab {

SpaceDescription DescribeSpace(const Problem& problem) {
  SpaceDescription space;
  space.counts = WalkSpace(problem, [](const RunConfig&) {});
  const std::vector<std::vector<std::string>> values = SpaceTree(problem).ValuesByRow();
  for (size_t i = 0; i < values.size(); ++i) {
    space.dimensions.push_back({SpaceRows()[i].name, values[i]});
  }
  return space;
}

}  // namespace trimtab
