// What the actions of pipelines take whose stages are alike.
#pragma once

#include <cstdint>
#include <vector>

#include "cost_model/dry_run/timeline.h"
#include "engine/schedule/schedules.h"

namespace trimtab {

/// What `programs` take when every stage takes `times` for a micro batch, in equal shares of its
/// chunks, and every message `message`.
inline std::vector<StageSeconds> SecondsOf(const std::vector<StageProgram>& programs, int64_t vp,
                                           const StageTimes& times, double message) {
  std::vector<StageSeconds> stages;
  for (const StageProgram& program : programs) {
    StageSeconds& stage = stages.emplace_back();
    for (const Action& action : program) {
      double seconds = message * static_cast<double>(vp);
      if (action.kind == ActionKind::kForward) seconds = times.forward;
      if (action.kind == ActionKind::kBackward) {
        seconds = times.backward_input + times.backward_weight;
      }
      if (action.kind == ActionKind::kBackwardInput) seconds = times.backward_input;
      if (action.kind == ActionKind::kBackwardWeight) seconds = times.backward_weight;
      stage.actions.push_back(seconds / static_cast<double>(vp));
    }
  }
  return stages;
}

}  // namespace trimtab
