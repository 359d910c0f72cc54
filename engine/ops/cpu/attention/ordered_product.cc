#include "engine/ops/cpu/attention/ordered_product.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace trimtab {
namespace {

/// One register of a target.
template <int kLanes>
struct RegisterOf {
  using Type [[gnu::vector_size(kLanes * sizeof(float))]] = float;
};

/// What a target's registers hold: kRows rows of two registers each, two registers of b, and one of
/// a.
template <int lanes, int rows>
struct Registers {
  static constexpr int kLanes = lanes;
  static constexpr int kRows = rows;
  using Vector = typename RegisterOf<lanes>::Type;
};

// Inlined into functions of each target, so vectors are never passed by value.

// kRows rows of c, kVectors vectors wide.
template <typename Target, int kRows, int kVectors>
[[gnu::always_inline]] inline void Tile(int64_t k, const ConstRows& a, const ConstRows& b,
                                        const MutableRows& c) {
  using Vector = typename Target::Vector;
  Vector sums[kRows][kVectors];
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVectors; ++v) {
      std::memcpy(&sums[r][v], c.data + r * c.stride + v * Target::kLanes, sizeof(Vector));
    }
  }
  const float* row = b.data;
  for (int64_t i = 0; i < k; ++i, row += b.stride) {
    Vector factors[kVectors];
    for (int v = 0; v < kVectors; ++v) {
      std::memcpy(&factors[v], row + v * Target::kLanes, sizeof(Vector));
    }
    for (int r = 0; r < kRows; ++r) {
      const float x = a.data[r * a.stride + i];
      for (int v = 0; v < kVectors; ++v) sums[r][v] += x * factors[v];
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVectors; ++v) {
      std::memcpy(c.data + r * c.stride + v * Target::kLanes, &sums[r][v], sizeof(Vector));
    }
  }
}

// `rows` of them, at most kRows.
template <typename Target, int kRows, int kVectors>
[[gnu::always_inline]] inline void TileOf(int64_t rows, int64_t k, const ConstRows& a,
                                          const ConstRows& b, const MutableRows& c) {
  if (rows == kRows) return Tile<Target, kRows, kVectors>(k, a, b, c);
  if constexpr (kRows > 1) TileOf<Target, kRows - 1, kVectors>(rows, k, a, b, c);
}

// Fewer columns than a vector has.
template <typename Target>
[[gnu::always_inline]] inline void FewColumns(int64_t rows, int64_t n, int64_t k,
                                              const ConstRows& a, const ConstRows& b,
                                              const MutableRows& c) {
  const size_t bytes = static_cast<size_t>(n) * sizeof(float);
  for (int64_t r = 0; r < rows; ++r) {
    typename Target::Vector sums = {};
    std::memcpy(&sums, c.data + r * c.stride, bytes);
    for (int64_t i = 0; i < k; ++i) {
      typename Target::Vector factors = {};
      std::memcpy(&factors, b.data + i * b.stride, bytes);
      sums += a.data[r * a.stride + i] * factors;
    }
    std::memcpy(c.data + r * c.stride, &sums, bytes);
  }
}

// Rows of c that are multiplied next, of the `left` that are left: tiles of nearly the same height,
// for a low one does not keep the multipliers busy.
template <typename Target>
[[gnu::always_inline]] inline int64_t NextRows(int64_t left) {
  const int64_t tiles = (left + Target::kRows - 1) / Target::kRows;
  return (left + tiles - 1) / tiles;
}

template <typename Target>
[[gnu::always_inline]] inline void Product(int64_t m, int64_t n, int64_t k, const ConstRows& a,
                                           const ConstRows& b, const MutableRows& c) {
  constexpr int kLanes = Target::kLanes;
  for (int64_t first = 0, rows = 0; first < m; first += rows) {
    rows = NextRows<Target>(m - first);
    const ConstRows rows_a = {a.data + first * a.stride, a.stride};
    ConstRows part_b = b;
    MutableRows part_c = {c.data + first * c.stride, c.stride};
    int64_t left = n;
    const auto advance = [&](int64_t columns) {
      part_b.data += columns;
      part_c.data += columns;
      left -= columns;
    };
    // Few rows are wide tiles: it takes eight sums to keep the multipliers busy.
    for (; rows == 1 && left >= 8 * kLanes; advance(8 * kLanes)) {
      Tile<Target, 1, 8>(k, rows_a, part_b, part_c);
    }
    for (; rows <= 2 && left >= 4 * kLanes; advance(4 * kLanes)) {
      TileOf<Target, 2, 4>(rows, k, rows_a, part_b, part_c);
    }
    for (; left >= 2 * kLanes; advance(2 * kLanes)) {
      TileOf<Target, Target::kRows, 2>(rows, k, rows_a, part_b, part_c);
    }
    for (; left >= kLanes; advance(kLanes)) {
      TileOf<Target, Target::kRows, 1>(rows, k, rows_a, part_b, part_c);
    }
    if (left > 0) FewColumns<Target>(rows, left, k, rows_a, part_b, part_c);
  }
}

using ProductFunction = void (*)(int64_t m, int64_t n, int64_t k, const ConstRows& a,
                                 const ConstRows& b, const MutableRows& c);

void ProductPlain(int64_t m, int64_t n, int64_t k, const ConstRows& a, const ConstRows& b,
                  const MutableRows& c) {
  Product<Registers<4, 6>>(m, n, k, a, b, c);
}

#if defined(__x86_64__)
[[gnu::target("arch=x86-64-v3")]] void ProductV3(int64_t m, int64_t n, int64_t k,
                                                 const ConstRows& a, const ConstRows& b,
                                                 const MutableRows& c) {
  Product<Registers<8, 6>>(m, n, k, a, b, c);
}

[[gnu::target("arch=x86-64-v4")]] void ProductV4(int64_t m, int64_t n, int64_t k,
                                                 const ConstRows& a, const ConstRows& b,
                                                 const MutableRows& c) {
  Product<Registers<16, 14>>(m, n, k, a, b, c);
}

ProductFunction FindProduct() {
  if (__builtin_cpu_supports("x86-64-v4") != 0) return ProductV4;
  if (__builtin_cpu_supports("x86-64-v3") != 0) return ProductV3;
  return ProductPlain;
}
#else
ProductFunction FindProduct() { return ProductPlain; }
#endif

}  // namespace

void OrderedProduct(int64_t m, int64_t n, int64_t k, ConstRows a, ConstRows b, MutableRows c) {
  static const ProductFunction product = FindProduct();
  product(m, n, k, a, b, c);
}

}  // namespace trimtab
