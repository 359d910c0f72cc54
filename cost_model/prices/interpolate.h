// Interpolation in log space over measured points: rates of hardware are smooth there, and one
// table covers five decades with a few points.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

namespace trimtab {

/// y(x) through points (x, y), x and y positive: linear in (log x, log y). Beyond the ends the
/// slope is that of a constant (`kHold`) or of proportionality (`kProportional`: y ~ x).
class LogCurve {
 public:
  enum class Ends { kHold, kProportional };

  LogCurve() = default;
  /// Ascending x, at least one point.
  LogCurve(std::span<const double> x, std::span<const double> y, Ends below, Ends above);

  bool empty() const { return log_x_.empty(); }
  double At(double x) const;

 private:
  std::vector<double> log_x_;
  std::vector<double> log_y_;
  Ends below_ = Ends::kHold;
  Ends above_ = Ends::kHold;
};

/// y(a, b, c) over a full grid, trilinear in logs; outside the grid the nearest face's value.
class LogGrid3 {
 public:
  LogGrid3() = default;
  /// Ascending axes; `y` row-major [a][b][c], positive.
  LogGrid3(std::array<std::vector<double>, 3> axes, std::span<const double> y);

  bool empty() const { return log_y_.empty(); }
  double At(double a, double b, double c) const;

 private:
  std::array<std::vector<double>, 3> log_axes_;
  std::vector<double> log_y_;
};

}  // namespace trimtab
