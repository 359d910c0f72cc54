// How many rows of tokens each rank has for each expert, where no token is looked at.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/layers/layer_context.h"
#include "engine/layers/moe/expert_counts.h"

namespace trimtab {

/// Rows that each rank has for each expert with pad_to_capacity: as many as its tokens can be of
/// those that an expert takes. 0 without.
int64_t PaddedRows(const LayerContext& context, const MoeConfig& moe);

/// Returns true if ExpectedExpertCounts is exact: rows are filled up, or choices are made in turn
/// and none is dropped.
bool RowsAreKnown(const LayerContext& context, const MoeConfig& moe);

/// Rows of each expert [E] that rank `rank` of the world has: exact where choices are made in turn
/// or filled up. Else as many for each, but for the experts of this context's own rank, which is
/// taken for the fullest: they have routing.imbalance_factor as many.
std::vector<int64_t> ExpectedExpertCounts(const LayerContext& context, const MoeConfig& moe,
                                          int rank);
/// Those of each of `ranks`.
ExpertCounts ExpectedExpertCounts(const LayerContext& context, const MoeConfig& moe,
                                  const std::vector<int>& ranks);

}  // namespace trimtab
