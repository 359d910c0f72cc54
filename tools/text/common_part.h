// Common part of a list of layouts, which a table need not repeat.
#pragma once

#include <string>
#include <vector>

namespace trimtab {

struct CommonPart {
  std::string common;             // "tp=1,dp=32": the pairs that all have; empty if none
  std::vector<std::string> rest;  // what else each has; "-" where that is nothing
};

/// Splits layouts, "KEY=V,KEY=V,...", into what all have in common and the rest. One layout, and
/// layouts of at most `longest` characters, have nothing in common.
CommonPart SplitCommonPart(const std::vector<std::string>& layouts, size_t longest = 30);

}  // namespace trimtab
