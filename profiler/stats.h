// Robust statistics of repeated timings.
#pragma once

#include <vector>

namespace trimtab {

/// The middle value, or the mean of the two middle values. `values` must not be empty.
double Median(std::vector<double> values);

/// Median absolute deviation from `center`: half of the values lie closer to it than this.
double MedianAbsoluteDeviation(const std::vector<double>& values, double center);

}  // namespace trimtab
