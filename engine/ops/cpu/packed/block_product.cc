#include "engine/ops/cpu/packed/block_product.h"

#include <cstring>

#include "engine/ops/kernel.h"

namespace trimtab {
namespace {

constexpr int64_t kLineBytes = 64;

/// What a target's registers hold: kRows rows of two registers each, two registers of factors, and
/// one of x. By groups, kGroupRows rows, so that totals stay in registers beside the sums where
/// there are enough: totals that went through memory after each group took as long as a sixth of
/// it.
template <int lanes, int rows, int group_rows>
struct Registers {
  static constexpr int kLanes = lanes;
  static constexpr int kRows = rows;
  static constexpr int kGroupRows = group_rows;
  using Vector [[gnu::vector_size(lanes * sizeof(float))]] = float;
};
constexpr int kVectors = 2;

/// Asks for one line of memory at a time.
class Fetcher {
 public:
  explicit Fetcher(const MemoryAhead& ahead) : next_(ahead.data), end_(ahead.data + ahead.bytes) {}

  [[gnu::always_inline]] void Next() {
    if (next_ >= end_) return;
    __builtin_prefetch(next_, /*rw=*/0, /*locality=*/2);
    next_ += kLineBytes;
  }

 private:
  const char* next_;
  const char* end_;
};

// Inlined into functions of each target, so vectors are never passed by value.

// sums [kRows, kVectors] += x [kRows, kBlockColumns] times `columns` rows of factors.
template <typename Target, int kRows, bool kFetches>
[[gnu::always_inline]] inline void AddProducts(int64_t columns, const float* x,
                                               const float* factors, Fetcher& fetcher,
                                               typename Target::Vector (&sums)[kRows][kVectors]) {
  using Vector = typename Target::Vector;
  // Of the tile that comes next, which lies behind this one: as much as of this one.
  const float* ahead = x + kRows * kBlockColumns;
#pragma GCC unroll 4
  for (int64_t i = 0; i < columns; ++i, factors += kPanelRows, ahead += kRows) {
    if (kFetches) fetcher.Next();
    __builtin_prefetch(ahead);
    Vector row[kVectors];
    for (int v = 0; v < kVectors; ++v) {
      std::memcpy(&row[v], factors + v * Target::kLanes, sizeof(Vector));
    }
    for (int r = 0; r < kRows; ++r) {
      const float each = x[r * kBlockColumns + i];
      for (int v = 0; v < kVectors; ++v) sums[r][v] += each * row[v];
    }
  }
}

// Sums of kRows rows, kVectors registers each, from `from`, kPanelRows floats apart, and back.
template <typename Target, int kRows>
[[gnu::always_inline]] inline void LoadSums(const float* from,
                                            typename Target::Vector (&sums)[kRows][kVectors]) {
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVectors; ++v) {
      std::memcpy(&sums[r][v], from + r * kPanelRows + v * Target::kLanes, sizeof(sums[r][v]));
    }
  }
}
template <typename Target, int kRows>
[[gnu::always_inline]] inline void StoreSums(const typename Target::Vector (&sums)[kRows][kVectors],
                                             float* to) {
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVectors; ++v) {
      std::memcpy(to + r * kPanelRows + v * Target::kLanes, &sums[r][v], sizeof(sums[r][v]));
    }
  }
}

// Of kRows rows, kVectors registers of the panel from column `lane` of it on.
template <typename Target, int kRows>
[[gnu::always_inline]] inline void Tile(const BlockProduct& p, int64_t first, int64_t lane,
                                        Fetcher& fetcher) {
  float* to = p.sums + first * kPanelRows + lane;
  typename Target::Vector sums[kRows][kVectors] = {};
  if (!p.first) LoadSums<Target, kRows>(to, sums);
  AddProducts<Target, kRows, true>(p.columns, p.x + first * kBlockColumns, p.factors + lane,
                                   fetcher, sums);
  StoreSums<Target, kRows>(sums, to);
}

// The same by groups.
template <typename Target, int kRows>
[[gnu::always_inline]] inline void GroupTile(const BlockProduct& p, int64_t first, int64_t lane,
                                             Fetcher& fetcher) {
  using Vector = typename Target::Vector;
  const int64_t groups = p.columns / kInt4Group;
  const float* x = p.x + first * kBlockColumns;
  const float* factors = p.factors + lane;
  const float* starts = p.starts + first * kBlockGroups;
  const float* scales = p.scales + lane;
  float* to = p.sums + first * kPanelRows + lane;
  Vector totals[kRows][kVectors] = {};
  if (!p.first) LoadSums<Target, kRows>(to, totals);
  for (int64_t g = 0; g < groups; ++g) {
    Vector sums[kRows][kVectors] = {};
    for (int r = 0; r < kRows; ++r) {
      for (int v = 0; v < kVectors; ++v) sums[r][v] += starts[r * kBlockGroups + g];
    }
    for (int i = 0; i < 4; ++i) fetcher.Next();
    AddProducts<Target, kRows, false>(kInt4Group, x + g * kInt4Group,
                                      factors + g * kInt4Group * kPanelRows, fetcher, sums);
    for (int v = 0; v < kVectors; ++v) {
      Vector scale;
      std::memcpy(&scale, scales + g * kPanelRows + v * Target::kLanes, sizeof(Vector));
      for (int r = 0; r < kRows; ++r) totals[r][v] += sums[r][v] * scale;
    }
  }
  StoreSums<Target, kRows>(totals, to);
}

// `rows` of them, at most kRows.
template <typename Target, int kRows, bool kByGroup>
[[gnu::always_inline]] inline void TileOf(const BlockProduct& p, int64_t first, int64_t rows,
                                          int64_t lane, Fetcher& fetcher) {
  if (rows == kRows) {
    return kByGroup ? GroupTile<Target, kRows>(p, first, lane, fetcher)
                    : Tile<Target, kRows>(p, first, lane, fetcher);
  }
  if constexpr (kRows > 1) TileOf<Target, kRows - 1, kByGroup>(p, first, rows, lane, fetcher);
}

template <typename Target, bool kByGroup>
[[gnu::always_inline]] inline void Tiles(const BlockProduct& p) {
  constexpr int kRows = kByGroup ? Target::kGroupRows : Target::kRows;
  Fetcher fetcher(p.ahead);
  for (int64_t first = 0, rows = 0; first < p.rows; first += rows) {
    // Tiles of nearly the same height: a low one does not keep the multipliers busy.
    const int64_t left = p.rows - first;
    const int64_t tiles = (left + kRows - 1) / kRows;
    rows = (left + tiles - 1) / tiles;
    for (int64_t r = first; r < first + rows && p.written != nullptr; ++r) {
      constexpr int64_t kLine = kLineBytes / static_cast<int64_t>(sizeof(float));
      for (int64_t i = 0; i < kPanelRows; i += kLine) {
        __builtin_prefetch(p.written + r * p.written_stride + i, /*rw=*/1);
      }
    }
    for (int64_t lane = 0; lane < kPanelRows; lane += kVectors * Target::kLanes) {
      TileOf<Target, kRows, kByGroup>(p, first, rows, lane, fetcher);
    }
  }
}

template <typename Target>
[[gnu::always_inline]] inline void Block(const BlockProduct& p) {
  return p.scales != nullptr ? Tiles<Target, true>(p) : Tiles<Target, false>(p);
}

using BlockFunction = void (*)(const BlockProduct& product);

void BlockPlain(const BlockProduct& product) { Block<Registers<4, 6, 6>>(product); }

#if defined(__x86_64__)
[[gnu::target("arch=x86-64-v3")]] void BlockV3(const BlockProduct& product) {
  Block<Registers<8, 6, 6>>(product);
}
[[gnu::target("arch=x86-64-v4")]] void BlockV4(const BlockProduct& product) {
  Block<Registers<16, 14, 6>>(product);
}

BlockFunction FindBlock() {
  if (__builtin_cpu_supports("x86-64-v4") != 0) return BlockV4;
  if (__builtin_cpu_supports("x86-64-v3") != 0) return BlockV3;
  return BlockPlain;
}
#else
BlockFunction FindBlock() { return BlockPlain; }
#endif

}  // namespace

void MultiplyBlock(const BlockProduct& product) {
  static const BlockFunction function = FindBlock();
  function(product);
}

}  // namespace trimtab
