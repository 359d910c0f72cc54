#include "cost_model/prices/tile_share.h"

#include <algorithm>

namespace trimtab {
namespace {

/// A tile of an output: what one multiprocessor works on at a time, and its speed against others.
struct Tile {
  int64_t rows;
  int64_t columns;
  double speed;
};
/// The shapes of CUTLASS and cuBLAS; small ones reuse less of what they load.
constexpr Tile kTiles[] = {
    {256, 128, 1.0}, {128, 256, 1.0}, {128, 128, 0.95}, {64, 128, 0.8}, {64, 64, 0.6}};

// What the first fetches and the writing of a tile take, in terms of its sums. On an A100 a tile of
// 256 x 128 multiplies 32 terms in 0.7 us at its multiprocessor's peak, 2.9 TFLOP/s; its 64 KB of
// sums take 3.5 us at that one's share of the memory bandwidth: 160 terms, some of which the next
// tile hides.
constexpr double kTermsAtTheEnds = 128;

}  // namespace

double DepthShare(int64_t k) {
  const auto terms = static_cast<double>(std::max<int64_t>(k, 1));
  return terms / (terms + kTermsAtTheEnds);
}

double TileShare(int64_t m, int64_t n, int64_t products, int64_t multiprocessors) {
  double best = 0;
  for (const Tile& tile : kTiles) {
    const int64_t down = (m + tile.rows - 1) / tile.rows;
    const int64_t across = (n + tile.columns - 1) / tile.columns;
    const int64_t tiles = products * down * across;
    const int64_t waves = (tiles + multiprocessors - 1) / multiprocessors;
    const auto paid = static_cast<double>(waves * multiprocessors * tile.rows * tile.columns);
    best = std::max(best, tile.speed * static_cast<double>(products * m * n) / paid);
  }
  return best;
}

}  // namespace trimtab
