// What calibration measures in one mode: products, attention, every other op, collectives. Each
// function is called by every rank of the mode together and returns the same kind of table on each;
// the first rank's counts.
#pragma once

#include <map>
#include <vector>

#include "cost_model/hardware_profile.h"
#include "profiler/calibrate_rig.h"

namespace trimtab {

/// Sizes to measure at.
struct CalibrationGrid {
  std::vector<int64_t> gemm_m;
  std::vector<int64_t> gemm_nk;
  std::vector<int64_t> batch_heads;
  std::vector<int64_t> sequences;
  std::vector<int64_t> head_sizes;
  std::vector<int64_t> op_bytes;
  std::vector<int64_t> message_bytes;
  int64_t most_flops = 0;  // of one product or attention; larger cells are left out
};
CalibrationGrid MakeGrid(bool quick);

std::vector<GemmPoint> MeasureGemm(Rig& rig, const CalibrationGrid& grid);
std::vector<AttentionPoint> MeasureAttention(Rig& rig, const CalibrationGrid& grid);
std::map<OpKind, std::vector<BytesPoint>> MeasureOps(Rig& rig, const CalibrationGrid& grid);
/// Over the rank's tensor-parallel group; all groups of the mode work at once.
std::map<CollectiveKind, std::vector<BytesPoint>> MeasureCollectives(Rig& rig,
                                                                     const CalibrationGrid& grid);

}  // namespace trimtab
