// What a space is made of: its dimensions, their values, and what each rule removes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "search/space/space.h"

namespace trimtab {

struct SpaceDescription {
  struct Dimension {
    std::string name;
    std::vector<std::string> values;  // that it has anywhere in the space, as layouts print them
  };
  std::vector<Dimension> dimensions;  // in the order in which they are bound
  SpaceCounts counts;
};

/// Walks the whole space of `problem`; nothing is predicted. Throws UsageError as WalkSpace does.
SpaceDescription DescribeSpace(const Problem& problem);

}  // namespace trimtab
