// How well products fill the multiprocessors of a GPU.
#pragma once

#include <cstdint>

namespace trimtab {

/// Share of its rate that so many products of m rows and n columns reach because they are cut into
/// tiles, which fill whole waves of `multiprocessors` only: of the tile shapes that libraries have,
/// the best one's. In (0, 1].
double TileShare(int64_t m, int64_t n, int64_t products, int64_t multiprocessors);

/// Share of its rate that a product with sums of k terms reaches because a tile fetches before it
/// multiplies and writes its sums afterwards. In (0, 1).
double DepthShare(int64_t k);

}  // namespace trimtab
