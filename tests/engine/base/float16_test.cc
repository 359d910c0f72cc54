#include "engine/base/float16.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

namespace trimtab {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

/// The multiple of 2^exponent nearest to `value`, ties to even; exact in double.
double RoundToMultiple(double value, int exponent) {
  return std::ldexp(std::nearbyint(std::ldexp(value, -exponent)), exponent);
}

/// What a float becomes in a format with `mantissa` bits behind the point and least exponent `min`.
double Rounded(float value, int mantissa, int min_exponent) {
  if (value == 0) return value;
  return RoundToMultiple(value, std::max(std::ilogb(value), min_exponent) - mantissa);
}

/// Random bit patterns of floats, without NaN and infinity, of every exponent.
std::vector<float> RandomFloats() {
  std::mt19937 random(7);
  std::vector<float> values;
  while (values.size() < 200000) {
    const auto value = std::bit_cast<float>(static_cast<uint32_t>(random()));
    if (std::isfinite(value)) values.push_back(value);
  }
  // And more of them in the range where binary16 is neither zero nor infinite.
  std::uniform_real_distribution<float> exponent(-27.0F, 17.0F);
  for (int i = 0; i < 200000; ++i) values.push_back(std::exp2(exponent(random)));
  return values;
}

TEST(Float16, EveryBf16SurvivesTheRoundTrip) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const float value = Bf16ToFloat(static_cast<uint16_t>(bits));
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(Bf16ToFloat(FloatToBf16(value)))) << bits;
    } else {
      EXPECT_EQ(FloatToBf16(value), bits);
    }
  }
}

TEST(Float16, EveryF16SurvivesTheRoundTrip) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const float value = F16ToFloat(static_cast<uint16_t>(bits));
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(F16ToFloat(FloatToF16(value)))) << bits;
    } else {
      EXPECT_EQ(FloatToF16(value), bits);
    }
  }
}

TEST(Float16, RoundsToNearestEven) {
  for (const float value : RandomFloats()) {
    const double as_bf16 = Rounded(value, 7, -126);
    if (std::abs(as_bf16) <= 0x1.fep127) {
      ASSERT_EQ(Bf16ToFloat(FloatToBf16(value)), as_bf16) << value;
    }
    const double as_f16 = Rounded(value, 10, -14);
    const double expected = std::abs(as_f16) > 65504 ? std::copysign(kInfinity, value) : as_f16;
    ASSERT_EQ(F16ToFloat(FloatToF16(value)), expected) << value;
  }
}

TEST(Float16, KnownBitPatterns) {
  EXPECT_EQ(FloatToBf16(1.0F), 0x3f80);
  EXPECT_EQ(FloatToBf16(-2.0F), 0xc000);
  EXPECT_EQ(FloatToBf16(kInfinity), 0x7f80);
  EXPECT_EQ(FloatToBf16(std::numeric_limits<float>::max()), 0x7f80);  // rounds up to infinity
  EXPECT_EQ(FloatToF16(1.0F), 0x3c00);
  EXPECT_EQ(FloatToF16(65504.0F), 0x7bff);
  EXPECT_EQ(FloatToF16(65519.0F), 0x7bff);
  EXPECT_EQ(FloatToF16(65520.0F), 0x7c00);
  EXPECT_EQ(FloatToF16(-kInfinity), 0xfc00);
  EXPECT_EQ(FloatToF16(0x1p-24F), 0x0001);
  EXPECT_EQ(FloatToF16(0x1p-25F), 0x0000);  // a tie: to even
  EXPECT_EQ(FloatToF16(-0.0F), 0x8000);
}

}  // namespace
}  // namespace trimtab
