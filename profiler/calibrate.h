// Calibration: measures this machine and makes its hardware profile.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "cost_model/hardware_profile.h"

namespace trimtab {

struct CalibrateOptions {
  std::string device = "cpu";
  bool quick = false;  // a coarser grid and fewer repeats: about 20 s instead of 60 s
  /// Modes to measure; empty = 1 rank with every core, one rank per core, and two ranks per core.
  std::vector<Mode> modes;
  /// Called before each part: what is being measured, parts done, parts in all.
  std::function<void(std::string_view part, int done, int total)> progress;
};

/// Measures with the engine's own device, ops and communicators, all ranks of a mode at work at
/// once as threads. Throws EnvironmentError for a device this machine does not have.
HardwareProfile Calibrate(const CalibrateOptions& options);

}  // namespace trimtab
