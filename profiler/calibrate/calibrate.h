// Calibration: measures this machine and makes its hardware profile.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cost_model/hardware/hardware_profile.h"
#include "profiler/calibrate/calibrate_plan.h"

namespace trimtab {

struct CalibrateOptions {
  DeviceKind device = DeviceKind::kCpu;
  bool quick = false;  // a coarser grid and fewer passes
  /// Modes to measure; empty = DefaultModes.
  std::vector<Mode> modes;
  /// Absent: the plan that `quick` stands for.
  std::optional<CalibrationPlan> plan;
  /// Called before each part: what is being measured, parts done, parts in all as far as is known.
  std::function<void(std::string_view part, int done, int total)> progress;
};

/// Measures every mode in several short passes, each in an order of its own, with the reference
/// probe in between, until what each table may be off by is small or the plan's time is over. A
/// machine whose speed wanders so treats all modes alike. Throws EnvironmentError for a device this
/// machine does not have.
HardwareProfile Calibrate(const CalibrateOptions& options);

/// Why a freshly measured profile is rougher than it should be, in a sentence for people: a table
/// may be off by more than 5 %. Empty when none is.
std::string SpreadCaveat(const HardwareProfile& profile);

}  // namespace trimtab
