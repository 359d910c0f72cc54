// Lower bounds of what a step takes, for layouts that are only partly chosen yet: a search leaves
// out at once all that cannot be among the best.
//
// A bound is what recordings of the engine cost, with everything left out that is not chosen yet.
// Nothing here says what a step does; tests hold every bound against the closed form of what the
// layout can become.
#pragma once

#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include "cost_model/closed_form/closed_form.h"
#include "cost_model/closed_form/pass_spans.h"
#include "cost_model/closed_form/pipeline_programs.h"
#include "cost_model/closed_form/shard_waits.h"
#include "cost_model/closed_form/shared_costs.h"
#include "cost_model/closed_form/step_ends.h"
#include "cost_model/hardware/cluster.h"
#include "engine/config/run/run_config.h"

namespace trimtab {

/// Not thread-safe: one per thread.
class StepBounds {
 public:
  /// `costs` and `ends`, which must outlive it, are those of the model. What a layout is asked
  /// about as a whole is remembered there.
  StepBounds(const ModelConfig& model, const Cluster& cluster, SharedCosts& costs, StepEnds& ends)
      : model_(model),
        cluster_(cluster),
        costs_(&costs),
        ends_(&ends),
        spans_(costs.spans()),
        whole_(costs.whole()),
        shard_waits_(model.num_layers, spans_) {}

  StepBounds(const StepBounds&) = delete;
  StepBounds& operator=(const StepBounds&) = delete;

  /// `run`, with any of `plans` at each stage, breaks no rule that its chosen part settles. Throws
  /// as ClosedFormEstimator::Run does.
  StepBound Of(const RunConfig& run, LayoutPart chosen, const PlanRange& plans);

 private:
  /// What passes of a stage take above what is held between steps.
  struct StageBytes {
    int64_t stage = 0;
    int64_t bytes = 0;
  };
  struct Passes {
    double seconds = 0;             // of the slowest stage, idle time included
    std::vector<StageBytes> bytes;  // of stages of which one is the fullest
  };

  // micro_batch_bounds.cc
  StepBound OfAnyMicroBatch(const RunConfig& run);
  /// Bounds the seconds of a global batch on the ranks of one replica, by a micro batch of all of
  /// it, in the layout `together`: by the formulas of GPUs no op takes longer for several sequences
  /// at once than for one after the other. nullopt: no such run could be recorded.
  std::optional<double> WholeBatchSeconds(const RunConfig& run, const ParallelConfig& together);
  /// Plans of none: what is not chosen costs nothing.
  StepBound OfMicroBatch(const RunConfig& run, const PlanRange* plans);
  /// Seconds of a micro batch both ways, at least, if of `full` so many layers are recomputed that
  /// the run fits its ranks, whichever pipeline it becomes.
  double LeastSecondsThatFit(const RunConfig& run);
  /// What a rank holds between steps, at least, whichever pipeline the run becomes.
  int64_t LeastHeldBytes(const RunConfig& run);
  /// What stages hold of micro batches, at least.
  int64_t LeastPassBytes(const RunConfig& run, const RecomputeConfig& leanest);
  // step_bounds.cc
  StepBound OfPasses(const RunConfig& run, LayoutPart chosen, const PlanRange& plans);
  /// Bounds the bytes of every plan of a range and every group of layers from below.
  struct PlanRangeBytes {
    PassSpans::Shape leanest;       // each layer on its own
    int64_t largest_group = 1;      // layers of a group
    int64_t smallest_group = 1;     // where it is all that may be chosen
    LayerBytes recomputed_layer{};  // where groups are among them: of layers that run again,
    LayerBytes kept_layer{};        // and of those that do not
    LayerWaits recomputed_waits{};  // of layers amid others
    LayerWaits kept_waits{};        // of those amid others that do not run again

    /// What passes through `chunk` leave, and backward passes take above that.
    void Leave(const ModelChunk& chunk, WaySpans& ways);
    /// With groups, what backward passes need meanwhile to move shards.
    void RaisePeaks(const ModelChunk& chunk, const LayerRange& stretch, WaySpans& ways);
    /// What forward passes leave beside what layers that run again do.
    int64_t BytesOfEnds(const ModelChunk& chunk);
    /// Weights of a layer that stay after its forward pass.
    int64_t GatheredBytes() const;
  };
  PlanRangeBytes BytesOfRange(const PricedRun& priced, const PricedRun& leanest,
                              const PlanRange& plans);
  /// Through a chunk: what they take above what is held between steps, and what the part for
  /// inputs leaves for that of weights.
  struct ChunkPasses {
    WaySpans ways;
    int64_t left_for_weights = 0;
  };
  /// `plan`: the first of `several`, or the only one.
  ChunkPasses PassesOf(const ModelChunk& chunk, const RecomputeConfig& plan,
                       bool several_micro_batches, PassSpans::Shape& shape,
                       std::optional<PlanRangeBytes>& several, ShardWaits& waits);
  /// `priced` has the first of `several` plans, or the only one. `ends`: of its stages; null where
  /// nothing is said of them.
  Passes PassesOf(const PricedRun& priced, PassSpans::Shape shape,
                  std::optional<PlanRangeBytes> several, ShardWaits waits,
                  const std::vector<EndCosts>* ends);
  /// What a rank of `stage` holds between steps; not `sharded`: if all that can be were.
  int64_t HeldBytes(const RunConfig& run, bool sharded, int64_t stage);
  int64_t RecordedHeldBytes(const RunConfig& run, int64_t zero, int64_t stage);
  /// Whether the stack keeps less than ours: what that saves, no bound knows.
  bool keeps_less() const;
  StepBound Finished(const RunConfig& run, const PriceSetting& setting, double seconds,
                     int64_t bytes) const;

  ModelConfig model_;
  Cluster cluster_;
  SharedCosts* costs_;
  StepEnds* ends_;
  PassSpans spans_;
  PassSpans whole_;  // of all of a layout: whatever looks at it next finds it recorded
  ShardWaitBounds shard_waits_;
  std::unordered_map<PackedKey, std::optional<double>, PackedKey::Hash> whole_batch_s_;
  PipelinePrograms programs_;
};

}  // namespace trimtab
