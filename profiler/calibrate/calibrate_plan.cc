#include "profiler/calibrate/calibrate_plan.h"

#include <algorithm>

#include "engine/base/units.h"

namespace trimtab {
namespace {

constexpr int kMostRanks = 16;
constexpr int kMostRanksQuick = 4;

}  // namespace

CalibrationPlan MakeCalibrationPlan(bool quick) {
  CalibrationPlan plan;
  plan.gemm_m = {32, 128, 512, 2048};
  plan.gemm_nk = {64, 256, 1024, 4096};
  plan.batch_heads = {2, 8, 32};
  plan.sequences = {32, 128, 256, 512, 1024};
  plan.head_sizes = {32, 64};
  plan.op_bytes = {2 * kKiB, 32 * kKiB, 512 * kKiB, 8 * kMiB};
  plan.message_bytes = {256, 32 * kKiB, kMiB, 16 * kMiB};
  plan.most_flops = 400'000'000;
  plan.window_s = 0.003;
  plan.rounds_of_a_pass = 2;
  plan.reference_steps = 3;
  plan.least_passes = 4;
  plan.enough_spread = 0.03;
  plan.most_seconds = 90;
  if (quick) return plan;
  plan.gemm_m = {32, 128, 512, 1024, 2048};
  plan.gemm_nk = {64, 256, 512, 1024, 4096};
  plan.batch_heads = {2, 8, 32};
  plan.sequences = {32, 64, 128, 256, 512, 1024};
  plan.head_sizes = {16, 32, 64, 128};
  plan.op_bytes = {kKiB, 8 * kKiB, 64 * kKiB, 512 * kKiB, 4 * kMiB, 32 * kMiB};
  plan.message_bytes = {64, 4 * kKiB, 64 * kKiB, kMiB, 8 * kMiB, 64 * kMiB};
  plan.most_flops = 1'500'000'000;
  plan.window_s = 0.005;
  plan.rounds_of_a_pass = 3;
  plan.reference_steps = 8;
  plan.least_passes = 7;
  plan.enough_spread = 0.01;
  plan.most_seconds = 600;
  return plan;
}

std::vector<Mode> DefaultModes(int cores, bool quick) {
  std::vector<Mode> modes;
  const int most_ranks = std::min(2 * cores, quick ? kMostRanksQuick : kMostRanks);
  for (int ranks = 1; ranks <= most_ranks; ranks *= 2) {
    modes.push_back({ranks, std::max(1, cores / ranks)});
  }
  return modes;
}

}  // namespace trimtab
