// PlanRange: plans of recomputation between which a layout may still choose.
#pragma once

#include <span>

#include "engine/config/layout/recompute.h"

namespace trimtab {

/// Plans of one kind, by what none of them goes below. The passes of each take at least as long as
/// those of `first`, and leave at least as much as those of `leanest`; a backward pass needs at
/// least as much beside what was left as that of `first`.
struct PlanRange {
  RecomputeConfig first;    // recomputes the least
  RecomputeConfig leanest;  // keeps the least
};

/// Whether it recomputes some first layers of a chunk, or all, each on its own.
bool IsBlock(const RecomputeConfig& plan);
/// Whether it recomputes groups of layers.
bool IsUniform(const RecomputeConfig& plan);
/// With groups of one layer.
RecomputeConfig Ungrouped(const RecomputeConfig& plan);
/// Whether layers that are alike also are in what is recomputed of them.
bool SamePlanForAll(const RecomputeConfig& plan);

/// What holds for all of `plans` (at least one): sets of modules in any order, of `full` ascending
/// numbers of layers of one method.
PlanRange RangeOf(std::span<const RecomputeConfig> plans);

}  // namespace trimtab
