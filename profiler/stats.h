// Robust statistics of repeated timings.
#pragma once

#include <vector>

namespace trimtab {

/// The middle value, or the mean of the two middle values. `values` must not be empty.
double Median(std::vector<double> values);

/// Median absolute deviation from `center`: half of the values lie closer to it than this.
double MedianAbsoluteDeviation(const std::vector<double>& values, double center);

/// How many standard errors an interval reaches to either side to hold with `confidence` (0..1,
/// both sides together), by Student's t with at least 2 degrees of freedom.
double StudentQuantile(double confidence, double degrees_of_freedom);

}  // namespace trimtab
