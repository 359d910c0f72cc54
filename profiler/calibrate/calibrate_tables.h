// What calibration measures in one mode: products, attention, every other op, collectives. Each
// function is called by every rank of the mode together and returns the same kind of table on each;
// the first rank's counts.
#pragma once

#include <map>
#include <vector>

#include "cost_model/hardware/hardware_profile.h"
#include "profiler/calibrate/calibrate_plan.h"
#include "profiler/calibrate/calibrate_rig.h"

namespace trimtab {

std::vector<GemmPoint> MeasureGemm(Rig& rig, const CalibrationPlan& plan);
std::vector<AttentionPoint> MeasureAttention(Rig& rig, const CalibrationPlan& plan);
std::map<OpKind, std::vector<BytesPoint>> MeasureOps(Rig& rig, const CalibrationPlan& plan);
/// Over the rank's tensor-parallel group; all groups of the mode work at once.
std::map<CollectiveKind, std::vector<BytesPoint>> MeasureCollectives(Rig& rig,
                                                                     const CalibrationPlan& plan);

}  // namespace trimtab
