// 8-bit floating point (Micikevicius et al., FP8 Formats for Deep Learning, arXiv:2209.05433): bit
// patterns to and from float. Conversions to 8 bits do as NVIDIA's cvt.rn.satfinite: they round to
// nearest, ties to even; what is too large, infinity too, becomes the largest finite value; NaN
// becomes the format's NaN without a sign (0x7f).
#pragma once

#include <bit>
#include <cstdint>

#include "engine/base/float16.h"

namespace trimtab {

/// e4m3: 4 exponent bits, 3 of mantissa, no infinity, NaN only with all of them set.
TRIMTAB_FLOAT_BITS float E4M3ToFloat(uint8_t code) {
  const uint32_t magnitude = code & 0x7fu;
  const uint32_t sign = static_cast<uint32_t>(code & 0x80u) << 24;
  // The bits as those of a float, whose exponent is biased by 127 instead of 7: 2^120 too small,
  // exactly so for subnormals too.
  const float value = std::bit_cast<float>(magnitude << 20) * 0x1p120f;
  const uint32_t bits = magnitude == 0x7fu ? 0x7fc00000u : std::bit_cast<uint32_t>(value);
  return std::bit_cast<float>(sign | bits);
}

/// e5m2: the upper half of an fp16: 5 exponent bits, 2 of mantissa, infinities and NaN.
TRIMTAB_FLOAT_BITS float E5M2ToFloat(uint8_t code) {
  return F16ToFloat(static_cast<uint16_t>(code << 8));
}

namespace float8_internal {

/// `kMantissa` bits of mantissa, the exponent biased by `kBias`; `kLargest` is the code of the
/// largest finite value.
template <int kMantissa, int kBias, uint32_t kLargest>
TRIMTAB_FLOAT_BITS uint8_t Round(float value) {
  constexpr int kDropped = 23 - kMantissa;
  constexpr uint32_t kSmallestNormal = static_cast<uint32_t>(128 - kBias) << 23;
  // A float of this magnitude has its last bit where the format's subnormals have theirs, so adding
  // it makes the addition round there.
  constexpr uint32_t kRounder = static_cast<uint32_t>(128 - kBias + 23 - kMantissa) << 23;
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t magnitude = bits & 0x7fffffffu;
  const float shifted = std::bit_cast<float>(magnitude) + std::bit_cast<float>(kRounder);
  const uint32_t subnormal = std::bit_cast<uint32_t>(shifted) - kRounder;
  const uint32_t rebiased = magnitude - (static_cast<uint32_t>(127 - kBias) << 23);
  const uint32_t half = (1u << (kDropped - 1)) - 1u;
  const uint32_t normal = (rebiased + half + ((magnitude >> kDropped) & 1u)) >> kDropped;
  uint32_t code = magnitude < kSmallestNormal ? subnormal : normal;
  code = code > kLargest ? kLargest : code;
  code |= (bits >> 24) & 0x80u;
  return static_cast<uint8_t>(magnitude > 0x7f800000u ? 0x7fu : code);
}

}  // namespace float8_internal

TRIMTAB_FLOAT_BITS uint8_t FloatToE4M3(float value) {
  return float8_internal::Round<3, 7, 0x7e>(value);
}

TRIMTAB_FLOAT_BITS uint8_t FloatToE5M2(float value) {
  return float8_internal::Round<2, 15, 0x7b>(value);
}

}  // namespace trimtab
