// How steady this machine is, and what that means for a search.
#pragma once

#include <string>
#include <vector>

namespace trimtab {

struct SpeedFinding {
  bool steady = true;
  std::string text;  // the range of speeds and what follows from it, for people
};

/// What `probe_s` says: seconds of one probe round, reading after reading, for each way of using
/// the machine. Speeds are shares of the fastest of each way; one reading in twenty at either end
/// is left out. Every list has at least one reading.
SpeedFinding DescribeSpeed(const std::vector<std::vector<double>>& probe_s);

/// Reads the probe for about `seconds`, by turns on one rank with all cores and on a rank for each
/// core.
SpeedFinding CheckSpeed(double seconds);

}  // namespace trimtab
