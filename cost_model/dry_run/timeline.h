// The timeline of a pipeline: its stages' programs executed against each other with prices for
// seconds. One rank stands for each stage.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "cost_model/recordings/time_span.h"
#include "engine/schedule/action.h"

namespace trimtab {

/// What a stage's program takes.
struct StageSeconds {
  std::vector<double>
      actions;  // of each action of the program, in its order; of a message: its way
  // From the start of the step, when what else a pass needs is there: weights that are under way
  // since the step before. 0 where there is no such; empty: nowhere.
  std::vector<double> not_before;
  double end = 0;  // reduction and update, when the program is done
};

/// What one stage spends its time on, from the start of the step to its own end.
struct StageTimeline {
  double compute_s = 0;  // in passes, whatever these consist of
  double exposed_s = 0;  // waiting for messages on their way
  double bubble_s = 0;   // waiting for a neighbour to have something to send, or take
  double weights_s = 0;  // waiting for weights on their way
  double end_s = 0;      // the sum of these, and `StageSeconds::end`
};

struct PipelineTimeline {
  std::vector<StageTimeline> stages;
  std::vector<std::vector<TimeSpan>> slices;  // of actions: by stage, then in program order
  std::vector<std::vector<TimeSpan>> waits;   // for neighbours and their messages: by stage
  std::vector<std::vector<TimeSpan>> weight_waits;

  /// The stage that ends last.
  size_t slowest() const;
};

/// Runs `programs`, one per stage. A stage submits its messages in the order of its program, beside
/// its passes. From one stage to another goes one message at a time, whatever goes other ways; it
/// starts when both ends have submitted it and the one before has come, and takes the longer of the
/// two stages' times. It is waited for as Action says.
PipelineTimeline RunPipeline(std::span<const StageProgram> programs,
                             std::span<const StageSeconds> seconds);

}  // namespace trimtab
