// CPU kernels of packed_gemm.h.
#pragma once

#include "engine/ops/packed/packed_gemm.h"

namespace trimtab {

/// Columns [first, first + columns) of a panel, as they multiply, into block [columns, kPanelRows].
/// `scales` are those of these columns, null where the format has none; with int4, `first` begins a
/// group.
void UnpackColumns(WeightFormat format, const void* panel, const float* scales, int64_t first,
                   int64_t columns, float* block);

/// What multiplies: registers of floats, or tiles where the processor has them and takes the format
/// (packed_tiles.h).
enum class Multiplier { kVectors, kTiles };
Multiplier MultiplierOf(WeightFormat format);

/// Floats that PackedGemmCpu needs for so many rows.
int64_t PackedGemmScratchCpu(Multiplier multiplier, const PackedMatrix& weights, GroupRows rows);

/// y: group g of the rows of x times matrix g, + bias [out] where it is not null. All fp32.
void PackedGemmCpu(Multiplier multiplier, int threads, const PackedMatrix& weights, GroupRows rows,
                   const float* x, const float* bias, float* y, float* scratch);

/// y [rows, columns] = x times the factor of each column.
void ScaleInputsCpu(int threads, int64_t rows, int64_t columns, const float* factors,
                    const float* x, float* y);

}  // namespace trimtab
