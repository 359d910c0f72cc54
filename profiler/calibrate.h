// Calibration: measures this machine and makes its hardware profile.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cost_model/hardware_profile.h"

namespace trimtab {

/// What to measure and how thoroughly.
struct CalibrationPlan {
  std::vector<int64_t> gemm_m;   // tokens of a micro batch
  std::vector<int64_t> gemm_nk;  // features in and out
  std::vector<int64_t> batch_heads;
  std::vector<int64_t> sequences;
  std::vector<int64_t> head_sizes;
  std::vector<int64_t> op_bytes;
  std::vector<int64_t> message_bytes;
  int64_t most_flops = 0;   // of one product or attention; larger cells are left out
  int repeats = 1;          // timed windows of a point; their median counts
  double window_s = 0;      // least length of a window
  int reference_steps = 1;  // timed training steps of the reference model, per layout and round
};
CalibrationPlan MakeCalibrationPlan(bool quick);

struct CalibrateOptions {
  std::string device = "cpu";
  bool quick = false;  // a coarser grid and fewer repeats: about 20 s instead of 60 s
  /// Modes to measure; empty = 1, 2, 4, ... ranks sharing the cores, up to two ranks per core and
  /// 16 ranks (quick: 4).
  std::vector<Mode> modes;
  /// Absent: the plan that `quick` stands for.
  std::optional<CalibrationPlan> plan;
  /// Called before each part: what is being measured, parts done, parts in all.
  std::function<void(std::string_view part, int done, int total)> progress;
};

/// Measures with the engine's own device, ops and communicators, all ranks of a mode at work at
/// once as threads. Throws EnvironmentError for a device this machine does not have.
HardwareProfile Calibrate(const CalibrateOptions& options);

}  // namespace trimtab
