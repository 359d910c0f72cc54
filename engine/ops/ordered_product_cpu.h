// A matrix product whose every element is one chain of multiply-adds, in the order of k: so a row
// of the result does not depend on how many others there are, nor on how the work is cut.
#pragma once

#include <cstdint>

namespace trimtab {

/// Row-major, rows `stride` floats apart.
struct ConstRows {
  const float* data;
  int64_t stride;
};
struct MutableRows {
  float* data;
  int64_t stride;
};

/// Memory that is read next: fetched into the second level of cache beside the arithmetic. Nothing
/// is read of it, so it may end behind what there is.
struct MemoryAhead {
  const char* data = nullptr;
  int64_t bytes = 0;
};

/// c [m, n] += a [m, k] * b [k, n], on the calling worker.
void OrderedProduct(int64_t m, int64_t n, int64_t k, ConstRows a, ConstRows b, MutableRows c,
                    MemoryAhead ahead = {});

/// c [m, n] += over groups of `group` columns of a and rows of b, of which k are a multiple, the
/// product of each group times its scales [k / group, n]. Each group's product is one chain, from
/// its row's start [m, k / group] on, and the sum over the groups another. n is a multiple of 32.
void OrderedGroupProduct(int64_t m, int64_t n, int64_t k, int64_t group, ConstRows a, ConstRows b,
                         const float* scales, ConstRows starts, MutableRows c,
                         MemoryAhead ahead = {});

}  // namespace trimtab
