// What the stages of a run cost: the programs of its pipeline carried out with recordings. What is
// made for one shape is remembered, so that a further layout costs a few sums.
#pragma once

#include <memory>
#include <vector>

#include "cost_model/closed_form/chunk_costs.h"
#include "cost_model/closed_form/end_costs.h"
#include "cost_model/closed_form/step_ends.h"
#include "cost_model/hardware/cluster.h"
#include "cost_model/recordings/piece_cost.h"
#include "engine/config/run/run_config.h"
#include "engine/schedule/schedules.h"

namespace trimtab {

/// The micro batches of a step on one rank of a pipeline stage.
struct StageCosts {
  PieceCost passes;                    // all of them
  std::vector<MessageCount> messages;  // to and from other stages
  double message_s = 0;                // the longer of an activation and a gradient
  StageTimes times = {0, 0, 0};  // of a micro batch; a backward pass in one part counts as `input`
  double first_passes_s = 0;     // until every chunk has had its first forward pass
  double last_passes_s = 0;      // from the one on that completes the first gradients of the step
  int64_t id_bytes = 0;          // of ids of micro batches, which stay
  int64_t total_peak = 0;        // bytes above what else is held between steps
  int64_t activations_peak = 0;
};

/// A step, by stage. Valid until the next call of StepCosts::Of.
struct StepView {
  const std::vector<StageCosts>& stages;
  const std::vector<EndCosts>& ends;
  const Pricer& pricer;
};

/// Not thread-safe: one per thread.
class StepCosts {
 public:
  /// Of layouts of one model at one sequence length, whose chunks `chunks`, which must outlive
  /// this, knows the costs of; `ends`, likewise, those of their ends.
  StepCosts(const ModelConfig& model, int64_t sequence_length, ChunkCosts& chunks, StepEnds& ends);
  ~StepCosts();
  StepCosts(StepCosts&&) noexcept;

  /// `run` has this model and sequence length and breaks no legality rule; anything else is a
  /// programmer's fault. Throws UsageError where the profile cannot price the run's precision,
  /// InputError where `run.fp8` names a layer that is not there.
  StepView Of(const RunConfig& run);
  /// Call when those of the chunks were set, which keep their recordings.
  void PricesChanged();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace trimtab
