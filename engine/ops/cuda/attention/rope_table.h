// The angles by which tokens turn, in shared memory.
#pragma once

#include "engine/ops/attention/rotary.h"
#include "engine/ops/attention/row_layout.h"
#include "engine/ops/cuda/kernel.h"
#include "engine/ops/math.h"

namespace trimtab {

/// Values that are read at once from a table that is read by N pairs.
template <int N>
inline constexpr int kAngleWord = N < 4 ? N : 4;

/// Where a token's sines, and its cosines, hold pair `pair` of `pairs`: packs of N pairs are read
/// as words of 4 values, and words that neighbouring threads read at once lie side by side.
template <int N>
__device__ __forceinline__ int AngleSlot(int pair, int pairs) {
  constexpr int kWord = kAngleWord<N>;
  const int word = pair % N / kWord;
  return (word * (pairs / N) + pair / N) * kWord + pair % kWord;
}

/// table [tokens][2][pairs]: sines and cosines of the tokens from `first_token` on, by the kThreads
/// threads of the block. A barrier must follow.
template <int N, int kThreads>
__device__ __forceinline__ void FillAngles(float* table, int64_t first_token, int tokens, int pairs,
                                           const RowPositions& positions,
                                           const RotaryFrequencies& frequencies) {
  for (int i = static_cast<int>(threadIdx.x); i < tokens * pairs; i += kThreads) {
    const int token = i / pairs;
    const int pair = i % pairs;
    const auto position = static_cast<double>(positions.of(first_token + token));
    float* angles = table + token * 2 * pairs + AngleSlot<N>(pair, pairs);
    SinCos(position * frequencies.per_position[pair], angles[0], angles[pairs]);
    angles[0] *= frequencies.factor;
    angles[pairs] *= frequencies.factor;
  }
}

}  // namespace trimtab
