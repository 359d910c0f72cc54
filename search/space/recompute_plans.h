// Plans of activation recomputation that a search chooses among.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "engine/config/layout/recompute.h"

namespace trimtab {

/// One plan of each family: none, all of some layers, some modules of all. Of layouts that differ
/// in nothing but the plan, of one family, the best stands for all.
std::span<const RecomputeConfig> PlanFamilies();

/// Whether two plans are of one family.
bool OfOneFamily(const RecomputeConfig& one, const RecomputeConfig& other);

/// How many plans there are of the family that `one` is of, for chunks of at most `layers`.
int64_t PlansOfFamily(const RecomputeConfig& one, int64_t layers);

/// The plan of that number among them: what recomputes little comes before what recomputes more. Of
/// layers, first so many on their own, then all in groups of so many; of modules, every set, but
/// that a whole MLP goes without its activation function, which is a part of it.
RecomputeConfig PlanOfFamily(const RecomputeConfig& one, int64_t layers, int64_t number);

/// Of at least two plans of a family, in that order, how many first ones are best looked at apart
/// from the rest: that have the most in common.
size_t LighterPart(std::span<const RecomputeConfig> plans);

}  // namespace trimtab
