// Rows of inputs cut into tiles for a matrix unit (packed_tiles.h).
#pragma once

#include <cstdint>

#include "engine/base/units.h"
#include "engine/ops/packed/packed_gemm.h"

namespace trimtab {

/// Bytes of a row of a tile, rows of one at most, and parts of an input.
inline constexpr int64_t kTileRowBytes = 64;
inline constexpr int64_t kMostHeight = 16;
inline constexpr int64_t kTileParts = 3;

/// Columns that a tile multiplies: inputs are cut into parts of bf16, and for int8 into bytes.
constexpr int64_t TileColumns(WeightFormat format) {
  return format == WeightFormat::kInt8 ? kTileRowBytes : kTileRowBytes / 2;
}

/// Rows of x as tiles, all of the same height, which is at most 16; the last ones may be filled up.
///
/// An input is the exact sum of three bf16: the upper eight bits of its significand, the next
/// eight, and the last. For int8 it is a whole number of 24 bits times the unit of its row, a power
/// of two: the largest of a row has 23 bits or more beside its sign. Of that number the parts are
/// its bytes, of which the upper one has the sign.
struct RowTiles {
  int64_t count;
  int64_t height;
  int64_t columns;
  int64_t steps;  // of TileColumns columns, the last one filled up
  char* parts;    // [count, steps, kTileParts, height, kTileRowBytes]
  float* units;   // [count, height]; null but for int8

  int64_t part_bytes() const { return height * kTileRowBytes; }
  int64_t tile_bytes() const { return steps * kTileParts * part_bytes(); }
};

/// How `rows` rows, one or more, of `columns` columns are cut into tiles, whose memory is yet to be
/// given.
RowTiles CutRows(WeightFormat format, int64_t rows, int64_t columns);
/// Floats of memory for them, and their place in it: it begins with a line.
int64_t FloatsOf(WeightFormat format, const RowTiles& tiles);
void PlaceTiles(WeightFormat format, float* memory, RowTiles& tiles);

/// Splits row `row` of x [columns] into its place.
void SplitRow(WeightFormat format, const float* x, int64_t row, const RowTiles& tiles);
/// Zeros for the rows from `row` on that fill up the last tile.
void ClearRows(int64_t row, const RowTiles& tiles);

}  // namespace trimtab
