#include "engine/ops/cpu/packed/row_tiles.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>

#include "engine/ops/kernel.h"

namespace trimtab {
namespace {

constexpr int64_t kPairColumns = TileColumns(WeightFormat::kBf16);
constexpr int64_t kByteColumns = TileColumns(WeightFormat::kInt8);

// Which columns of a step are where with int4: a pair is of two that one shift of their word brings
// to where they are looked up.
constexpr auto kInt4Order = [] {
  std::array<uint8_t, kPairColumns> order{};
  for (size_t i = 0; i < order.size(); ++i) {
    order[i] = static_cast<uint8_t>(i - i % 8 + i % 8 / 2 + i % 2 * 4);
  }
  return order;
}();

// x [kPairColumns] as parts of bf16, each `stride` numbers behind the one before.
TRIMTAB_CLONES void SplitPairs(const float* x, int64_t stride, uint16_t* parts) {
  constexpr uint32_t kUpper = 0xffff0000u;
#pragma omp simd
  for (int64_t i = 0; i < kPairColumns; ++i) {
    const auto all = std::bit_cast<uint32_t>(x[i]);
    const float rest = x[i] - std::bit_cast<float>(all & kUpper);
    const auto middle = std::bit_cast<uint32_t>(rest);
    const float last = rest - std::bit_cast<float>(middle & kUpper);
    parts[i] = static_cast<uint16_t>(all >> 16);
    parts[stride + i] = static_cast<uint16_t>(middle >> 16);
    parts[2 * stride + i] = static_cast<uint16_t>(std::bit_cast<uint32_t>(last) >> 16);
  }
}

// x [kByteColumns] times `scale`, rounded to whole numbers of 24 bits, as bytes.
TRIMTAB_CLONES void SplitBytes(const float* x, float scale, int64_t stride, char* parts) {
  constexpr int32_t kMost = (1 << 23) - 1;
#pragma omp simd
  for (int64_t i = 0; i < kByteColumns; ++i) {
    const float value = x[i] * scale;
    const auto nearest = static_cast<int32_t>(value + (value < 0 ? -0.5f : 0.5f));
    const int32_t whole = nearest < kMost ? nearest : kMost;
    parts[i] = static_cast<char>(whole >> 16);
    parts[stride + i] = static_cast<char>(whole >> 8);
    parts[2 * stride + i] = static_cast<char>(whole);
  }
}

// The bits of the largest magnitude; of one that is not a number they are larger still.
TRIMTAB_CLONES uint32_t LargestBits(int64_t columns, const float* x) {
  uint32_t largest = 0;
#pragma omp simd reduction(max : largest)
  for (int64_t i = 0; i < columns; ++i) {
    const uint32_t bits = std::bit_cast<uint32_t>(x[i]) & 0x7fffffffu;
    largest = bits > largest ? bits : largest;
  }
  return largest;
}

// What a row is multiplied by to become whole numbers, and the unit that these count.
struct Units {
  float scale;
  float unit;
};

Units UnitsOf(int64_t columns, const float* x) {
  constexpr uint32_t kBias = 127;
  constexpr uint32_t kShift = 22;  // The largest is in [2^22, 2^23).
  const uint32_t exponent = LargestBits(columns, x) >> 23;
  if (exponent == 2 * kBias + 1) return {0, std::numeric_limits<float>::quiet_NaN()};
  // Both are to be normal numbers.
  const uint32_t unit = std::max(exponent, kShift + 1) - kShift;
  return {std::bit_cast<float>((2 * kBias - unit) << 23), std::bit_cast<float>(unit << 23)};
}

char* PlaceOf(int64_t row, const RowTiles& tiles) {
  return tiles.parts + row / tiles.height * tiles.tile_bytes() + row % tiles.height * kTileRowBytes;
}

}  // namespace

RowTiles CutRows(WeightFormat format, int64_t rows, int64_t columns) {
  const int64_t count = CeilDiv(rows, kMostHeight);
  return {.count = count,
          .height = CeilDiv(rows, count),
          .columns = columns,
          .steps = CeilDiv(columns, TileColumns(format)),
          .parts = nullptr,
          .units = nullptr};
}

int64_t FloatsOf(WeightFormat format, const RowTiles& tiles) {
  const int64_t units = format == WeightFormat::kInt8 ? tiles.count * tiles.height : 0;
  return tiles.count * tiles.tile_bytes() / static_cast<int64_t>(sizeof(float)) + units;
}

void PlaceTiles(WeightFormat format, float* memory, RowTiles& tiles) {
  tiles.parts = reinterpret_cast<char*>(memory);
  if (format != WeightFormat::kInt8) return;
  tiles.units = memory + tiles.count * tiles.tile_bytes() / static_cast<int64_t>(sizeof(float));
}

void SplitRow(WeightFormat format, const float* x, int64_t row, const RowTiles& tiles) {
  const int64_t stride = tiles.part_bytes();
  const int64_t step = TileColumns(format);
  const bool bytes = format == WeightFormat::kInt8;
  const Units units = bytes ? UnitsOf(tiles.columns, x) : Units{1, 1};
  if (bytes) tiles.units[row] = units.unit;
  char* parts = PlaceOf(row, tiles);
  for (int64_t begin = 0; begin < tiles.columns; begin += step, parts += kTileParts * stride) {
    const int64_t count = std::min(step, tiles.columns - begin);
    float columns[kByteColumns];
    const float* from = x + begin;
    if (format == WeightFormat::kInt4) {
      for (size_t i = 0; i < kInt4Order.size(); ++i) columns[i] = from[kInt4Order[i]];
      from = columns;
    } else if (count < step) {
      std::fill(std::copy_n(from, count, columns), columns + step, 0.0f);
      from = columns;
    }
    if (bytes) {
      SplitBytes(from, units.scale, stride, parts);
    } else {
      SplitPairs(from, stride / 2, reinterpret_cast<uint16_t*>(parts));
    }
  }
}

void ClearRows(int64_t row, const RowTiles& tiles) {
  for (; row < tiles.count * tiles.height; ++row) {
    if (tiles.units != nullptr) tiles.units[row] = 0;
    char* parts = PlaceOf(row, tiles);
    for (int64_t i = 0; i < tiles.steps * kTileParts; ++i, parts += tiles.part_bytes()) {
      std::memset(parts, 0, kTileRowBytes);
    }
  }
}

}  // namespace trimtab
