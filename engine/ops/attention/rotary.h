// The frequencies by which rotary positions turn the pairs of a head.
#pragma once

#include <array>
#include <cstdint>

#include "engine/config/model/rope_scaling.h"

namespace trimtab {

struct RotaryFrequencies {
  /// Pair i turns by position * per_position[i].
  std::array<double, kMaxRotarySize / 2> per_position;
  /// Multiplies cos and sin.
  float factor = 1.0f;
};

/// per_position[i] = theta^(-2i/dims), scaled:
///   linear   divided by `factor` (Chen et al., arXiv:2306.15595)
///   llama3   the same from wavelengths of original_length / low_frequency on, not below
///            original_length / high_frequency, in between by turns (Llama 3.1's reference code)
///   yarn     the same for pairs that turn less than beta_slow times over original_length, not for
///            those that turn more than beta_fast times, in between linearly by the pair's number;
///            cos and sin times attention_factor (Peng et al., YaRN, arXiv:2309.00071)
/// `inverse` turns back.
RotaryFrequencies FrequenciesOf(const Rotary& rotary, int64_t head_size, bool inverse);

}  // namespace trimtab
