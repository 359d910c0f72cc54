// How long two things take that a kernel does beside each other.
#pragma once

#include <cmath>

namespace trimtab {

/// Seconds of a kernel whose arithmetic alone takes `compute_s` and whose memory traffic alone
/// takes `memory_s`: (a^n + b^n)^(1/n). A kernel fetches its next tile while it multiplies the
/// last, but the first fetch and the last write have nothing beside them, and the two share the
/// chip's power; so it is slower than the longer of the two where they are alike. n = 1 would be no
/// overlap at all and n = infinity the roofline (Williams et al., 2009); 1.8 is what published
/// serving runs say of weights that are streamed. Training runs hardly tell it from 3.
inline double BesideEachOther(double compute_s, double memory_s) {
  constexpr double kOverlap = 1.8;
  if (compute_s <= 0 || memory_s <= 0) return compute_s + memory_s;
  return std::pow(std::pow(compute_s, kOverlap) + std::pow(memory_s, kOverlap), 1 / kOverlap);
}

}  // namespace trimtab
