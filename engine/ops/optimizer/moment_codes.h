// Eight bits of a moment: which of 256 numbers of at most 1 it is, times the scale of its block.
//
// The numbers are those of 8-bit optimizers (Dettmers et al., arXiv:2110.02861; bitsandbytes'
// create_dynamic_map): in each power of ten from 10^-6 on, twice as many as in the one below, so
// that small values keep their relative precision. Unlike there, -1 takes the place of the smallest
// negative number: a block whose largest magnitude is negative keeps it, and what is stored again
// is the same.
#pragma once

#include <cstdint>

#include "engine/ops/math.h"

namespace trimtab {

inline constexpr int kMomentCodes = 256;

/// In ascending order.
struct MomentCodes {
  float values[kMomentCodes];
};

constexpr MomentCodes MakeMomentCodes(bool has_sign) {
  constexpr int kPowers = 7;
  MomentCodes codes{};
  int count = 0;
  double positive[kMomentCodes]{};
  double power = 1e-6;
  for (int i = 0; i < kPowers; ++i, power *= 10) {
    const int cells = (1 << i) * (has_sign ? 1 : 2);
    for (int cell = 0; cell < cells; ++cell) {
      positive[count++] = power * (0.1 + 0.9 * (cell + 0.5) / cells);
    }
  }
  positive[count++] = 1.0;
  int next = 0;
  for (int i = count; has_sign && i-- > 1;) {
    codes.values[next++] = -static_cast<float>(positive[i]);
  }
  codes.values[next++] = 0.0f;
  for (int i = 0; i < count; ++i) codes.values[next++] = static_cast<float>(positive[i]);
  return codes;
}

/// Of moments of either sign, and of those that are never negative.
inline constexpr MomentCodes kSignedMomentCodes = MakeMomentCodes(true);
inline constexpr MomentCodes kUnsignedMomentCodes = MakeMomentCodes(false);

/// The number among `values` that is nearest to x.
TRIMTAB_HOST_DEVICE uint8_t MomentCode(const float* values, float x) {
  int code = 0;
  for (int step = kMomentCodes / 2; step > 0; step /= 2) {
    const int next = code + step;
    const float middle = 0.5f * (values[next - 1] + values[next]);
    code = x > middle ? next : code;
  }
  return static_cast<uint8_t>(code);
}

/// The scale of a block of such moments from its largest magnitude, and what to multiply by to
/// store: both 0 if the block is so close to zero that the factor would not be a number.
TRIMTAB_HOST_DEVICE void MomentCodeScale(float largest, float& scale, float& inverse) {
  constexpr float kSmallest = 1.17549435e-38f;
  const bool usable = largest >= kSmallest;
  scale = usable ? largest : 0.0f;
  inverse = usable ? 1.0f / largest : 0.0f;
}

}  // namespace trimtab
