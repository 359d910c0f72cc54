// A 64-bit mixing function, for shuffles, synthetic data and checksums.
#pragma once

#include <cstdint>

namespace trimtab {

/// SplitMix64's step (Steele et al., OOPSLA 2014): a bijection that spreads every input bit over
/// the whole result.
constexpr uint64_t MixBits(uint64_t x) {
  x += 0x9E3779B97F4A7C15ULL;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ULL;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBULL;
  return x ^ (x >> 31);
}

}  // namespace trimtab
