#include "cost_model/prices/interpolate.h"

#include <algorithm>
#include <cmath>

#include "engine/base/error.h"

namespace trimtab {
namespace {

/// Logs of positive, and for axes ascending, values.
std::vector<double> Logs(std::span<const double> values, bool ascending) {
  std::vector<double> logs;
  logs.reserve(values.size());
  for (const double value : values) {
    TRIMTAB_ASSERT(value > 0, "a log table holds positive values, got {}", value);
    logs.push_back(std::log2(value));
    TRIMTAB_ASSERT(!ascending || logs.size() < 2 || logs.back() > logs[logs.size() - 2],
                   "the axis of a table ascends, got {} out of order", value);
  }
  return logs;
}

/// Where `x` falls on an axis: the cell's index and the weight of its upper edge, 0..1.
struct Position {
  size_t index = 0;
  double upper = 0;
};

Position Locate(const std::vector<double>& axis, double x) {
  if (x <= axis.front() || axis.size() == 1) return {0, 0.0};
  if (x >= axis.back()) return {axis.size() - 2, 1.0};
  size_t cell = 0;
  while (x > axis[cell + 1]) ++cell;  // axes are a handful of points
  return {cell, (x - axis[cell]) / (axis[cell + 1] - axis[cell])};
}

}  // namespace

LogCurve::LogCurve(std::span<const double> x, std::span<const double> y, Ends below, Ends above)
    : log_x_(Logs(x, true)), log_y_(Logs(y, false)), below_(below), above_(above) {
  TRIMTAB_ASSERT(!log_x_.empty() && log_x_.size() == log_y_.size(), "a curve of {} x and {} y",
                 x.size(), y.size());
}

double LogCurve::At(double x) const {
  const double log_x = std::log2(x);
  if (log_x <= log_x_.front()) {
    const double slope = below_ == Ends::kProportional ? 1.0 : 0.0;
    return std::exp2(log_y_.front() + slope * (log_x - log_x_.front()));
  }
  if (log_x >= log_x_.back()) {
    const double slope = above_ == Ends::kProportional ? 1.0 : 0.0;
    return std::exp2(log_y_.back() + slope * (log_x - log_x_.back()));
  }
  const Position at = Locate(log_x_, log_x);
  return std::exp2(log_y_[at.index] * (1 - at.upper) + log_y_[at.index + 1] * at.upper);
}

LogGrid3::LogGrid3(std::array<std::vector<double>, 3> axes, std::span<const double> y)
    : log_y_(Logs(y, false)) {
  size_t cells = 1;
  for (size_t i = 0; i < axes.size(); ++i) {
    log_axes_[i] = Logs(axes[i], true);
    cells *= axes[i].size();
  }
  TRIMTAB_ASSERT(cells > 0 && cells == log_y_.size(), "a grid of {} cells with {} values", cells,
                 log_y_.size());
}

double LogGrid3::At(double a, double b, double c) const {
  const Position pa = Locate(log_axes_[0], std::log2(a));
  const Position pb = Locate(log_axes_[1], std::log2(b));
  const Position pc = Locate(log_axes_[2], std::log2(c));
  const size_t size_b = log_axes_[1].size();
  const size_t size_c = log_axes_[2].size();
  double sum = 0;
  for (size_t corner = 0; corner < 8; ++corner) {
    const size_t ia = corner & 1;
    const size_t ib = (corner >> 1) & 1;
    const size_t ic = corner >> 2;
    const double weight = (ia != 0 ? pa.upper : 1 - pa.upper) *
                          (ib != 0 ? pb.upper : 1 - pb.upper) * (ic != 0 ? pc.upper : 1 - pc.upper);
    if (weight <= 0) continue;  // also keeps an axis of one point within its table
    const size_t cell = ((pa.index + ia) * size_b + pb.index + ib) * size_c + pc.index + ic;
    sum += weight * log_y_[cell];
  }
  return std::exp2(sum);
}

}  // namespace trimtab
