// Pipelines whose ranks share cores: a stage that waits leaves its own to the others.
#pragma once

#include <span>

#include "cost_model/estimate.h"
#include "cost_model/hardware/cluster.h"
#include "engine/config/run/run_config.h"
#include "engine/schedule/schedules.h"

namespace trimtab {

/// Threads for each core, where a run's ranks have more of them than there are cores; else 1, as on
/// GPUs.
double Crowding(const RunConfig& run, const Cluster& cluster);

/// What a stage does in a step, in seconds of a machine on which all stages are busy.
struct StageWork {
  StageTimes times;  // of a micro batch
  double end_s = 0;  // when its passes are done
};

/// Seconds until the last stage is done, at `crowding` threads for each core, above 1.
///
/// Prices of a mode hold while all of its ranks are busy. Where j of p stages are, they share the
/// cores evenly: each runs p / j times as fast, or where that would be more than its threads can
/// use, `crowding` times. Passes wait for those that their data are of; messages take no time.
double SecondsOnSharedCores(Schedule schedule, const PipelineShape& shape,
                            std::span<const StageWork> stages, double crowding);

/// Makes the `parts` of the stage that has most to do add up to `seconds`: the rest is waiting, or
/// if there is none, it runs faster than priced, with the cores of those that wait.
void FillTo(double seconds, Breakdown& parts);

}  // namespace trimtab
