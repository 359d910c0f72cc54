#include "engine/ops/row_tiles_cpu.h"

#include <algorithm>
#include <array>
#include <bit>

#include "engine/ops/kernel.h"

namespace trimtab {
namespace {

// Which columns of a step are where with int4: a pair is of two that one shift of their word brings
// to where they are looked up.
constexpr auto kInt4Order = [] {
  std::array<uint8_t, kTileColumns> order{};
  for (size_t i = 0; i < order.size(); ++i) {
    order[i] = static_cast<uint8_t>(i - i % 8 + i % 8 / 2 + i % 2 * 4);
  }
  return order;
}();

// What inputs are multiplied by: numbers of int8 come as so many times themselves (SpreadInt8).
float UnitOf(WeightFormat format) { return format == WeightFormat::kInt8 ? 0x1p-24f : 1; }

// x [kTileColumns] times `unit`, a power of two, as parts, each `stride` numbers behind the one
// before.
TRIMTAB_CLONES void SplitColumns(const float* x, float unit, int64_t stride, uint16_t* parts) {
  constexpr uint32_t kUpper = 0xffff0000u;
#pragma omp simd
  for (int64_t i = 0; i < kTileColumns; ++i) {
    const float value = x[i] * unit;
    const auto all = std::bit_cast<uint32_t>(value);
    const float rest = value - std::bit_cast<float>(all & kUpper);
    const auto middle = std::bit_cast<uint32_t>(rest);
    const float last = rest - std::bit_cast<float>(middle & kUpper);
    parts[i] = static_cast<uint16_t>(all >> 16);
    parts[stride + i] = static_cast<uint16_t>(middle >> 16);
    parts[2 * stride + i] = static_cast<uint16_t>(std::bit_cast<uint32_t>(last) >> 16);
  }
}

}  // namespace

int64_t RowTiles::tile_size() const {
  return StepsOf(columns) * kTileParts * height * kTileColumns;
}

RowTiles CutRows(int64_t rows, int64_t columns) {
  const int64_t count = CeilDiv(rows, kMostHeight);
  return {.count = count, .height = CeilDiv(rows, count), .columns = columns, .parts = nullptr};
}

void SplitRow(WeightFormat format, const float* x, int64_t row, const RowTiles& tiles) {
  const float unit = UnitOf(format);
  const int64_t stride = tiles.height * kTileColumns;
  uint16_t* parts =
      tiles.parts + row / tiles.height * tiles.tile_size() + row % tiles.height * kTileColumns;
  for (int64_t begin = 0; begin < tiles.columns; begin += kTileColumns) {
    const int64_t count = std::min(kTileColumns, tiles.columns - begin);
    float columns[kTileColumns] = {};
    const float* from = x + begin;
    if (format == WeightFormat::kInt4) {
      for (size_t i = 0; i < kInt4Order.size(); ++i) columns[i] = from[kInt4Order[i]];
      from = columns;
    } else if (count < kTileColumns) {
      std::copy_n(from, count, columns);
      from = columns;
    }
    SplitColumns(from, unit, stride, parts);
    parts += kTileParts * stride;
  }
}

void ClearRows(int64_t row, const RowTiles& tiles) {
  const std::array<float, kTileColumns> zeros{};
  for (; row < tiles.count * tiles.height; ++row) {
    uint16_t* parts =
        tiles.parts + row / tiles.height * tiles.tile_size() + row % tiles.height * kTileColumns;
    const int64_t stride = tiles.height * kTileColumns;
    for (int64_t step = 0; step < StepsOf(tiles.columns); ++step, parts += kTileParts * stride) {
      SplitColumns(zeros.data(), 1, stride, parts);
    }
  }
}

}  // namespace trimtab
