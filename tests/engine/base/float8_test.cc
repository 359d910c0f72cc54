#include "engine/base/float8.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <optional>
#include <vector>

namespace trimtab {
namespace {

/// One of the two formats: its conversions, and what the paper's table 1 says of it.
struct Format {
  const char* name;
  float (*to_float)(uint8_t);
  uint8_t (*from_float)(float);
  int mantissa_bits;
  int bias;
  uint8_t largest;  // code of the largest finite value
  bool has_infinity;
};

float FromE4M3(uint8_t code) { return E4M3ToFloat(code); }
float FromE5M2(uint8_t code) { return E5M2ToFloat(code); }
uint8_t ToE4M3(float value) { return FloatToE4M3(value); }
uint8_t ToE5M2(float value) { return FloatToE5M2(value); }

constexpr Format kFormats[] = {
    {"e4m3", FromE4M3, ToE4M3, 3, 7, 0x7e, false},
    {"e5m2", FromE5M2, ToE5M2, 2, 15, 0x7b, true},
};

/// The value of a code by the formats' definition; none for NaN.
std::optional<double> Definition(const Format& format, uint8_t code) {
  const int magnitude = code & 0x7f;
  const double sign = code >= 0x80 ? -1.0 : 1.0;
  if (magnitude > format.largest) {
    const bool infinite = format.has_infinity && magnitude == format.largest + 1;
    return infinite ? std::optional(sign * std::numeric_limits<double>::infinity()) : std::nullopt;
  }
  const int exponent = magnitude >> format.mantissa_bits;
  const int mantissa = magnitude & ((1 << format.mantissa_bits) - 1);
  const int leading = exponent == 0 ? 0 : 1 << format.mantissa_bits;
  return sign *
         std::ldexp(leading + mantissa, std::max(exponent, 1) - format.bias - format.mantissa_bits);
}

TEST(Float8, EveryCodeIsWhatTheFormatSays) {
  for (const Format& format : kFormats) {
    for (int code = 0; code < 256; ++code) {
      const auto expected = Definition(format, static_cast<uint8_t>(code));
      const float value = format.to_float(static_cast<uint8_t>(code));
      if (!expected) {
        EXPECT_TRUE(std::isnan(value)) << format.name << " " << code;
        continue;
      }
      EXPECT_EQ(static_cast<double>(value), *expected) << format.name << " " << code;
      EXPECT_EQ(std::signbit(value), code >= 0x80) << format.name << " " << code;
      if (std::isinf(value)) continue;
      EXPECT_EQ(format.from_float(value), code) << format.name;
    }
  }
  EXPECT_EQ(E4M3ToFloat(0x7e), 448.0f);
  EXPECT_EQ(E4M3ToFloat(0x01), 0x1p-9f);
  EXPECT_EQ(E5M2ToFloat(0x7b), 57344.0f);
  EXPECT_EQ(E5M2ToFloat(0x01), 0x1p-16f);
}

/// The code of the value nearest to a positive `value`, ties to the even code; the largest for what
/// lies beyond it. By search over all codes, in double.
uint8_t Nearest(const Format& format, double value) {
  uint8_t best = 0;
  for (int code = 1; code <= format.largest; ++code) {
    const auto candidate = static_cast<uint8_t>(code);
    const double distance = std::abs(*Definition(format, candidate) - value);
    const double least = std::abs(*Definition(format, best) - value);
    if (distance < least || (distance == least && code % 2 == 0)) best = candidate;
  }
  return best;
}

// Rounding never goes back as values grow, so its steps are all there is to know: the floats on
// either side of each midpoint between neighbours, the midpoint itself, and each code's own value.
TEST(Float8, RoundsToNearestEvenAtEveryStep) {
  for (const Format& format : kFormats) {
    const auto expect = [&](float value) {
      const uint8_t expected = Nearest(format, value);
      ASSERT_EQ(format.from_float(value), expected) << format.name << " " << value;
      ASSERT_EQ(format.from_float(-value), expected | 0x80) << format.name << " " << -value;
    };
    for (int code = 0; code < format.largest; ++code) {
      const double low = *Definition(format, static_cast<uint8_t>(code));
      const double high = *Definition(format, static_cast<uint8_t>(code + 1));
      const auto middle = static_cast<float>((low + high) / 2);
      ASSERT_EQ(static_cast<double>(middle), (low + high) / 2);
      expect(middle);
      expect(std::nextafter(middle, 0.0f));
      expect(std::nextafter(middle, 1e9f));
      expect(static_cast<float>(high));
    }
  }
}

TEST(Float8, RoundingNeverGoesBack) {
  for (const Format& format : kFormats) {
    uint8_t before = 0;
    // Every 1009th positive float, subnormal ones first, and infinity.
    for (uint32_t bits = 0; bits < 0x7f800000u; bits += 1009) {
      const uint8_t code = format.from_float(std::bit_cast<float>(bits));
      ASSERT_GE(code, before) << format.name << " " << bits;
      before = code;
    }
    EXPECT_EQ(before, format.largest);
  }
}

TEST(Float8, SaturatesAndKeepsNaN) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
  for (const Format& format : kFormats) {
    for (const float large : {kInfinity, std::numeric_limits<float>::max(), 1e6f}) {
      EXPECT_EQ(format.from_float(large), format.largest);
      EXPECT_EQ(format.from_float(-large), format.largest | 0x80);
    }
    EXPECT_EQ(format.from_float(kNaN), 0x7f);
    EXPECT_EQ(format.from_float(-kNaN), 0x7f);
    EXPECT_EQ(format.from_float(std::bit_cast<float>(0x7f800001u)), 0x7f);
  }
  EXPECT_EQ(FloatToE4M3(464.0f), 0x7e);  // where an unsaturated format would round up
}

static_assert(FloatToE4M3(1.0f) == 0x38 && E4M3ToFloat(0x38) == 1.0f);
static_assert(FloatToE5M2(1.0f) == 0x3c && E5M2ToFloat(0x3c) == 1.0f);

}  // namespace
}  // namespace trimtab
