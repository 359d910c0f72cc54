// State of updates, widened to fp32 and rounded again, a block at a time:
// engine/ops/optimizer/update_state.h.
#pragma once

#include <cstdint>

#include "engine/ops/optimizer/update_state.h"

namespace trimtab {

// Elements [begin, begin + n) of tensors, n <= kConvertBlock; `begin` is a multiple of
// kMomentBlock.

void LoadMoments(const Moment& moment, MomentSign sign, int64_t begin, int64_t n, float* values);
/// Changes `values`.
void StoreMoments(const Moment& moment, MomentSign sign, int64_t begin, int64_t n, float* values);
void LoadMaster(const MasterWeight& weight, int64_t begin, int64_t n, float* values);
void StoreMaster(const MasterWeight& weight, int64_t begin, int64_t n, const float* values);
/// Any tensor of a plain type.
void LoadValues(const Tensor& tensor, int64_t begin, int64_t n, float* values);

}  // namespace trimtab
