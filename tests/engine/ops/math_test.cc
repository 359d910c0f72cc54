#include "engine/ops/math.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace trimtab {
namespace {

TEST(MathTest, ExpIsWithinAnUlpAndAHalf) {
  double worst = 0;
  for (double x = -87.0; x < 88.0; x += 0.00037) {
    const auto rounded = static_cast<float>(x);
    const double exact = std::exp(static_cast<double>(rounded));
    const double ulp = exact * 0x1p-23;
    worst = std::max(worst, std::abs(static_cast<double>(Exp(rounded)) - exact) / ulp);
  }
  EXPECT_LE(worst, 1.5);
}

TEST(MathTest, ExpAtItsEnds) {
  EXPECT_EQ(Exp(0.0f), 1.0f);
  EXPECT_EQ(Exp(-88.0f), 0.0f);
  EXPECT_EQ(Exp(-std::numeric_limits<float>::infinity()), 0.0f);
  EXPECT_EQ(Exp(1000.0f), Exp(88.0f));
  EXPECT_TRUE(std::isfinite(Exp(88.0f)));
  EXPECT_TRUE(std::isnan(Exp(std::numeric_limits<float>::quiet_NaN())));
}

TEST(MathTest, SinCosHoldOverLongSequences) {
  double worst = 0;
  for (double angle = -2e6; angle < 2e6; angle += 17.31) {
    float sine = 0;
    float cosine = 0;
    SinCos(angle, sine, cosine);
    worst = std::max({worst, std::abs(static_cast<double>(sine) - std::sin(angle)),
                      std::abs(static_cast<double>(cosine) - std::cos(angle))});
  }
  EXPECT_LE(worst, 0x1p-23);
}

TEST(MathTest, ErfAndTanhAreWithinTwoUlps) {
  double worst_erf = 0;
  double worst_tanh = 0;
  for (double x = -12.0; x < 12.0; x += 0.000137) {
    const auto rounded = static_cast<float>(x);
    const auto exact = static_cast<double>(rounded);
    const auto error = [](float value, double expected) {
      return std::abs(static_cast<double>(value) - expected) / (std::abs(expected) * 0x1p-23);
    };
    worst_erf = std::max(worst_erf, error(Erf(rounded), std::erf(exact)));
    worst_tanh = std::max(worst_tanh, error(Tanh(rounded), std::tanh(exact)));
  }
  EXPECT_LE(worst_erf, 2.0);
  EXPECT_LE(worst_tanh, 2.0);
  for (const float x : {-1e6f, 1e6f}) {
    EXPECT_EQ(Erf(x), x < 0 ? -1.0f : 1.0f);
    EXPECT_EQ(Tanh(x), x < 0 ? -1.0f : 1.0f);
  }
}

TEST(MathTest, DerivativesStayFiniteAtTheEnds) {
  for (const float x : {-1e6f, -100.0f, 100.0f, 1e6f}) {
    EXPECT_NEAR(GeluDerivative(x), x > 0 ? 1.0 : 0.0, 1e-6) << x;
    EXPECT_NEAR(SiluDerivative(x), x > 0 ? 1.0 : 0.0, 1e-6) << x;
    EXPECT_NEAR(GeluErfDerivative(x), x > 0 ? 1.0 : 0.0, 1e-6) << x;
  }
}

}  // namespace
}  // namespace trimtab
