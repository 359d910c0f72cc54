// What precisions other than fp32 cost in one mode, as factors on the tables of fp32.
#pragma once

#include <map>
#include <string>

#include "cost_model/hardware/hardware_profile.h"
#include "profiler/calibrate/calibrate_plan.h"
#include "profiler/calibrate/calibrate_rig.h"

namespace trimtab {

/// Factors of bf16, fp16 and fp8 by name: medians, over a few shapes in the middle of the plan, of
/// seconds against fp32 at the same shape. fp8 is a type of products only: attention and other ops
/// run in bf16. Called by every rank of the mode together; the first rank's answer counts.
std::map<std::string, PrecisionFactors> MeasurePrecisions(Rig& rig, const CalibrationPlan& plan);

}  // namespace trimtab
