// Rotary positions (Su et al., RoFormer, arXiv:2104.09864): which elements of a head turn by how
// much, and how they reach beyond the sequences that a model was first trained on.
#pragma once

#include <cstdint>

namespace trimtab {

/// Elements of a head that turn, at most: kernels hold the angles of as many.
inline constexpr int64_t kMaxRotarySize = 1024;

/// How the frequencies of rotary positions are changed for sequences longer than those first
/// trained on. Formulas in engine/ops/attention/rotary.h.
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

/// How queries and keys of a head turn.
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
  bool operator==(const Rotary&) const = default;
};

}  // namespace trimtab
