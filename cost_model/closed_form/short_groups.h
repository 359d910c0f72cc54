// Groups of layers that run again together, recorded with as few of their layers as show all.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/config/layout/recompute.h"
#include "engine/model/gpt_model.h"

namespace trimtab {

/// Like layers of a group that show what all do: what moves beside the first two differs from what
/// moves beside those that follow, and the last one's pass goes on backward at once. So one of them
/// stands for all others.
inline constexpr int64_t kShownOfGroup = 4;

/// A group as it is recorded.
struct ShortGroup {
  int64_t layers = 1;
  /// The layer, counted from the group's first, that stands for further ones which are like it and
  /// stand among such; 0: it has too few for that.
  int64_t repeated = 0;
};

/// The groups that `plan` makes of `chunk` of the model. `first_alike`: see FirstAlike.
std::vector<ShortGroup> GroupsOf(const ModelChunk& chunk, const RecomputeConfig& plan,
                                 const std::vector<int64_t>& first_alike);

/// A chunk, with its plan, that shows all groups of another.
struct ShortChunk {
  ModelChunk chunk;
  RecomputeConfig plan;
};

/// What is left of `chunk`, recomputed by `plan`, if of layers that are alike and neighbours in a
/// long group only a few are. All is where what were left is no chunk of the model.
ShortChunk Shorten(const ModelChunk& chunk, const RecomputeConfig& plan,
                   const std::vector<int64_t>& first_alike);

}  // namespace trimtab
