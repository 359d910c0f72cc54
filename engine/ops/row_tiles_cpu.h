// Rows of inputs cut into tiles of bf16, for a matrix unit (packed_tiles_cpu.h).
#pragma once

#include <cstdint>

#include "engine/base/units.h"
#include "engine/ops/packed_gemm.h"

namespace trimtab {

/// Columns that a tile multiplies, parts of an input, and rows of a tile at most.
inline constexpr int64_t kTileColumns = 32;
inline constexpr int64_t kTileParts = 3;
inline constexpr int64_t kMostHeight = 16;

/// Steps of kTileColumns columns.
constexpr int64_t StepsOf(int64_t columns) { return CeilDiv(columns, kTileColumns); }

/// Rows of x as tiles, all of the same height, which is at most 16; the last ones may be filled up.
struct RowTiles {
  int64_t count;
  int64_t height;
  int64_t columns;
  /// bf16 [count, steps, kTileParts, height, kTileColumns]: steps of kTileColumns columns, the last
  /// one filled up.
  uint16_t* parts;

  int64_t tile_size() const;  // elements
};

/// How `rows` rows, one or more, of `columns` columns are cut into tiles, whose memory is yet to be
/// given.
RowTiles CutRows(int64_t rows, int64_t columns);

/// Splits row `row` of x [columns] into its place.
void SplitRow(WeightFormat format, const float* x, int64_t row, const RowTiles& tiles);
/// Zeros for the rows from `row` on that fill up the last tile.
void ClearRows(int64_t row, const RowTiles& tiles);

}  // namespace trimtab
