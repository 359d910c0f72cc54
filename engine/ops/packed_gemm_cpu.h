// CPU kernels of packed_gemm.h.
#pragma once

#include "engine/ops/packed_gemm.h"

namespace trimtab {

/// Columns [first, first + columns) of a panel, as they multiply, into block [columns, kPanelRows];
/// with groups, `first` begins one. `panel` and `scales` are the panel's.
void UnpackColumns(WeightFormat format, const void* panel, const float* scales, int64_t first,
                   int64_t columns, float* block);

/// y: group g of the rows of x times matrix g, + bias [out] where it is not null. All fp32.
void PackedGemmCpu(int threads, const PackedMatrix& weights, GroupRows rows, const float* x,
                   const float* bias, float* y);

}  // namespace trimtab
