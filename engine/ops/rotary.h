// How rotary positions turn the queries and keys of a head (Su et al., RoFormer, arXiv:2104.09864).
#pragma once

#include <array>
#include <cstdint>

#include "engine/config/rope_scaling.h"

namespace trimtab {

struct Rotary {
  double theta = 10000.0;
  int64_t dims = 0;  // of a head that turn, the first ones; an even number, 0 = all
  /// Pairs are dims 2i and 2i + 1 (GPT-J), not i and i + dims / 2 (Llama).
  bool interleaved = false;
  RopeScaling scaling{};

  /// All of a head, unscaled: as a number, theta stands for itself.
  Rotary(double base) : theta(base) {}  // NOLINT(google-explicit-constructor)

  /// Pairs of a head that turn.
  int64_t pairs(int64_t head_size) const { return (dims > 0 ? dims : head_size) / 2; }
};

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
