// Rotary positions: how many elements of a head may turn, and how they reach beyond the sequences
// that a model was first trained on.
#pragma once

#include <cstdint>

namespace trimtab {

/// Elements of a head that turn, at most: kernels hold the angles of as many.
inline constexpr int64_t kMaxRotarySize = 1024;

/// How the frequencies of rotary positions are changed for sequences longer than those first
/// trained on. Formulas in engine/ops/rotary.h.
enum class RopeScalingKind { kNone, kLinear, kLlama3, kYarn };
struct RopeScaling {
  RopeScalingKind kind = RopeScalingKind::kNone;
  double factor = 1.0;
  int64_t original_length = 0;  // positions first trained on; kLlama3, kYarn
  double low_frequency = 1.0;   // kLlama3: wavelengths above original_length / this are scaled
  double high_frequency = 4.0;  // kLlama3: those below original_length / this are not
  double beta_fast = 32.0;      // kYarn: turns over original_length from which on none is scaled
  double beta_slow = 1.0;       // kYarn: turns below which all are
  bool truncate = true;         // kYarn: the range between ends at whole pairs
  double attention_factor = 0;  // kYarn: multiplies cos and sin; 0 = 0.1 ln(factor) + 1

  bool operator==(const RopeScaling&) const = default;
};

}  // namespace trimtab
