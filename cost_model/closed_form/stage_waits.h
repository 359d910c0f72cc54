// What a stage waits for besides its passes: messages between stages, and those of its replicas at
// the end of a step.
#pragma once

#include "cost_model/closed_form/end_costs.h"
#include "engine/config/layout/parallel_config.h"
#include "engine/schedule/schedules.h"

namespace trimtab {

/// What a stage waits for messages between stages, of `message_s` seconds each: those that fill and
/// drain the pipeline once; and those of the further rounds through its stages that the first micro
/// batch makes and the last one makes back, or of all what is longer than the pass that it runs
/// beside. `times`: of a micro batch on the stage.
double ExposedBetweenStages(const PipelineShape& shape, const StageTimes& times, double message_s);

/// What a stage waits besides because only so many micro batches are under way as there are stages:
/// meanwhile it has passes for as many. Every micro batch but the first waits for its share of what
/// a round trip with its messages takes longer. What passes beside the trip hide of the messages is
/// waited for once, while the pipeline fills.
double ExposedByRoundTrips(const PipelineShape& shape, const StageTimes& times, double message_s,
                           const RoundTrip& trip);

/// What passes change about the data-parallel messages of the end of a step, in seconds.
struct BesidePasses {
  double exposed_s = 0;  // against all of the reduction, and none of the gathering
  double slowed_s = 0;   // of ops, beside what is hidden
  double seconds() const { return exposed_s + slowed_s; }
};

/// Passes hide the reduction of gradients beside the last of them, and wait for what is still under
/// way in the next step's first forward passes. A stack may hide a share of them only.
BesidePasses Beside(const ParallelConfig& layout, double first_passes_s, double last_passes_s,
                    const EndCosts& end, const Pricer& pricer);

}  // namespace trimtab
