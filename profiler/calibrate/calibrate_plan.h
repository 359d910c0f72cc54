// What calibration measures, and how thoroughly.
#pragma once

#include <cstdint>
#include <vector>

#include "cost_model/hardware/hardware_profile.h"

namespace trimtab {

struct CalibrationPlan {
  std::vector<int64_t> gemm_m;   // tokens of a micro batch
  std::vector<int64_t> gemm_nk;  // features in and out
  std::vector<int64_t> batch_heads;
  std::vector<int64_t> sequences;
  std::vector<int64_t> head_sizes;
  std::vector<int64_t> op_bytes;
  std::vector<int64_t> message_bytes;
  int64_t most_flops = 0;    // of one product or attention; larger cells are left out
  double window_s = 0;       // least length of the timed window of a point; one window a pass
  int rounds_of_a_pass = 1;  // of visits to the reference runs of all modes
  int reference_steps = 1;   // timed training steps of such a visit

  int least_passes = 2;
  double enough_spread = 0;  // no further pass once every table's spread is at or below it
  double most_seconds = 0;   // no third or later pass that would end after so long
};

/// `quick`: a coarser grid, about 75 s and at most 90 s; else at most ten minutes.
CalibrationPlan MakeCalibrationPlan(bool quick);

/// 1, 2, 4, ... ranks that share `cores`, up to two ranks per core and 16 ranks (quick: 4). Others
/// borrow the nearest mode's tables, and a search of one machine rarely gains from more.
std::vector<Mode> DefaultModes(int cores, bool quick);

}  // namespace trimtab
