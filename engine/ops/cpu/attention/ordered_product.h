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

/// c [m, n] += a [m, k] * b [k, n], on the calling worker.
void OrderedProduct(int64_t m, int64_t n, int64_t k, ConstRows a, ConstRows b, MutableRows c);

}  // namespace trimtab
