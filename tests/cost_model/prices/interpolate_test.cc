#include "cost_model/prices/interpolate.h"

#include <gtest/gtest.h>

#include <cmath>

namespace trimtab {
namespace {

using Ends = LogCurve::Ends;

TEST(LogCurve, PassesThroughItsPointsAndIsAPowerLawBetween) {
  const std::vector<double> x = {1, 100, 10000};
  const std::vector<double> y = {2, 20, 2000};
  const LogCurve curve(x, y, Ends::kHold, Ends::kHold);
  for (size_t i = 0; i < x.size(); ++i) EXPECT_NEAR(curve.At(x[i]), y[i], 1e-9 * y[i]);
  EXPECT_NEAR(curve.At(10), 2 * std::sqrt(10.0), 1e-9);
  EXPECT_NEAR(curve.At(1000), 200, 1e-6);
}

TEST(LogCurve, HoldsOrGrowsBeyondItsEnds) {
  const std::vector<double> x = {10, 20};
  const std::vector<double> y = {3, 5};
  const LogCurve hold(x, y, Ends::kHold, Ends::kHold);
  EXPECT_NEAR(hold.At(1), 3, 1e-9);
  EXPECT_NEAR(hold.At(200), 5, 1e-9);
  const LogCurve grow(x, y, Ends::kProportional, Ends::kProportional);
  EXPECT_NEAR(grow.At(1), 0.3, 1e-9);
  EXPECT_NEAR(grow.At(200), 50, 1e-9);
}

TEST(LogCurve, OnePointIsEnough) {
  const std::vector<double> x = {8};
  const std::vector<double> y = {4};
  const LogCurve curve(x, y, Ends::kHold, Ends::kProportional);
  EXPECT_NEAR(curve.At(1), 4, 1e-9);
  EXPECT_NEAR(curve.At(16), 8, 1e-9);
}

TEST(LogGrid3, ReproducesAPowerLawInThreeDimensions) {
  const std::array<std::vector<double>, 3> axes = {{{1, 4, 64}, {2, 8}, {1, 10, 100, 1000}}};
  const auto law = [](double a, double b, double c) { return 5 * a / b * std::sqrt(c); };
  std::vector<double> y;
  for (const double a : axes[0]) {
    for (const double b : axes[1]) {
      for (const double c : axes[2]) y.push_back(law(a, b, c));
    }
  }
  const LogGrid3 grid(axes, y);
  for (const double a : {1.0, 3.0, 50.0, 64.0}) {
    for (const double b : {2.0, 5.0}) {
      for (const double c : {1.0, 30.0, 999.0}) {
        EXPECT_NEAR(grid.At(a, b, c), law(a, b, c), 1e-9 * law(a, b, c))
            << a << " " << b << " " << c;
      }
    }
  }
  EXPECT_NEAR(grid.At(1000, 8, 10), law(64, 8, 10), 1e-9);  // beyond the face: the face
}

TEST(LogGrid3, AcceptsAnAxisOfOnePoint) {
  const std::array<std::vector<double>, 3> axes = {{{7}, {2, 8}, {3}}};
  const std::vector<double> y = {1, 4};
  const LogGrid3 grid(axes, y);
  EXPECT_NEAR(grid.At(100, 4, 1), 2, 1e-9);
}

}  // namespace
}  // namespace trimtab
