// Rotary positions of one token on the cpu: what turns whole projections and what joins heads.
#pragma once

#include <cstdint>

#include "engine/ops/attention/rotary.h"

namespace trimtab {

/// The rotation of the heads of one token after another.
class TokenRotation {
 public:
  /// `frequencies` are those of `rotary` over heads of `head_size`, and outlive this.
  TokenRotation(const Rotary& rotary, const RotaryFrequencies& frequencies, int64_t head_size)
      : frequencies_(frequencies),
        pairs_(rotary.pairs(head_size)),
        interleaved_(rotary.interleaved) {}

  void MoveTo(int64_t position);
  /// Turns 2 * pairs values in place.
  void Turn(float* x) const;

 private:
  const RotaryFrequencies& frequencies_;
  int64_t pairs_;
  bool interleaved_;
  float sine_[kMaxRotarySize / 2];
  float cosine_[kMaxRotarySize / 2];
};

}  // namespace trimtab
