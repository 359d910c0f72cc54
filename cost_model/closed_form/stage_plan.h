// What a pipeline stage does in a step, and what it holds on the way: its program carried out with
// recordings. Prices change none of it.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "cost_model/closed_form/chunk_costs.h"
#include "cost_model/recordings/piece_cost.h"
#include "cost_model/recordings/recording.h"
#include "engine/schedule/schedules.h"

namespace trimtab {

/// How often each way is gone through, by chunk.
using PassCounts = std::vector<std::array<int64_t, kWayCount>>;

/// What a stage does and holds, but for what it costs.
struct StagePlan {
  PassCounts first_passes;  // see StageCosts; of several micro batches the first is like others
  PassCounts last_passes;
  std::vector<MessageCount> messages;
  int64_t held = 0;  // all the while
  int64_t total_peak = 0;
  int64_t activations_peak = 0;
};

/// Micro batches of a step that show what a step of all of them does: how it begins and ends, what
/// each stage holds, and every kind of pass in between. Fewer, where the schedule goes on alike
/// once the pipeline is full; what each micro batch does happens the more often.
int64_t ShownMicroBatches(Schedule schedule, const PipelineShape& shape);
/// Micro batches of a step that has as many in flight on every stage.
int64_t MicroBatchesThatFill(Schedule schedule, const PipelineShape& shape);

/// Plans the micro batches of `program` through the chunks of its stage; `held`: bytes that stay
/// all the while.
StagePlan PlanStage(const StageProgram& program, const std::vector<const WayCosts*>& chunks,
                    const MessageRecording& messages, int64_t micro_batches, int64_t held);

double SecondsOf(const PassCounts& passes, const std::vector<const WayCosts*>& chunks);

}  // namespace trimtab
