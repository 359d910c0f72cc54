// Lower bounds of what a step takes, for layouts that are only partly chosen yet: a search leaves
// out at once all that cannot be among the best.
//
// A bound is what recordings of the engine cost, with everything left out that is not chosen yet.
// Nothing here says what a step does; tests hold every bound against the closed form of what the
// layout can become.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include "cost_model/closed_form.h"
#include "cost_model/cluster.h"
#include "cost_model/packed_key.h"
#include "cost_model/pass_spans.h"
#include "engine/config/run_config.h"
#include "engine/schedule/pipeline.h"

namespace trimtab {

/// Not thread-safe: one per thread.
class StepBounds {
 public:
  /// `costs`, which must outlive it, are those of the model. What a layout is asked about as a
  /// whole is remembered there.
  StepBounds(const ModelConfig& model, const Cluster& cluster, SharedCosts& costs)
      : model_(model), cluster_(cluster), costs_(&costs), spans_(costs) {}

  /// `run`, with any of `plans` at each stage, breaks no rule that its chosen part settles. Throws
  /// as ClosedFormEstimator::Run does.
  StepBound Of(const RunConfig& run, LayoutPart chosen, const PlanRange& plans);

 private:
  using SecondsByWay = std::array<double, kWayCount>;

  /// What passes of a stage take above what is held between steps.
  struct StageBytes {
    int64_t stage = 0;
    int64_t bytes = 0;
  };
  struct Passes {
    double seconds = 0;  // of the slowest stage, idle time included
    double messages_s = 0;
    std::vector<StageBytes> bytes;  // of stages of which one is the fullest
  };

  // micro_batch_bounds.cc
  StepBound OfAnyMicroBatch(const RunConfig& run);
  /// Plans of none: what is not chosen costs nothing.
  StepBound OfMicroBatch(const RunConfig& run, const PlanRange* plans);
  /// A micro batch both ways, at least, if of `full` so many layers are recomputed that the run
  /// fits its ranks, whichever pipeline it becomes.
  double LeastSecondsThatFit(const RunConfig& run);
  /// What stages hold of micro batches, at least.
  int64_t LeastPassBytes(const RunConfig& run, const RecomputeConfig& leanest);
  // step_bounds.cc
  StepBound OfPasses(const RunConfig& run, LayoutPart chosen, const PlanRange& plans);
  /// More of a layer of the longest stretch of like ones, amid others like it: time, and what a
  /// forward pass leaves, such as weights that stay.
  struct MovingLayer {
    SecondsByWay seconds{};
    std::array<int64_t, kWayCount> bytes{};
  };
  /// What moving shards beside passes takes, as far as it is looked at.
  struct Moving {
    bool gradients = false;  // whether they may be sharded, where passes are looked at without that
    std::optional<MovingLayer> least;            // of any layer
    std::optional<MovingLayer> recomputed;       // of a layer that `full` recomputes,
    std::optional<MovingLayer> kept;             // and of one that it does not, or of another plan
    std::optional<PassSpans::Shape> few_layers;  // chunks without ends that have no more
  };
  /// `priced` has the first of several plans, or the only one; `leanest`: the last of several.
  Passes PassesOf(const PricedRun& priced, PassSpans::Shape shape,
                  std::optional<PassSpans::Shape> leanest, Moving moving);
  /// Of a chunk, at most.
  int64_t MostLayersAlike(const RunConfig& run);
  /// With any plan.
  Moving LeastMoving(const RunConfig& run);
  /// With `plan`, which `sharded`, the whole of `run`, has.
  Moving MovingShards(const RunConfig& run, const PricedRun& sharded, const RecomputeConfig& plan);
  /// Not `later`: as far as the first micro batch of a step says, which is sooner known.
  MovingLayer MovingShardsOf(const RunConfig& run, const RecomputeConfig& plan, bool later = true);
  /// Adds it to the ways through `chunk`, recomputed by `plan`.
  static void AddMoving(const Moving& moving, const RecomputeConfig& plan, const ModelChunk& chunk,
                        const LayerRange& stretch, WaySpans& ways);
  /// What a rank of `stage` holds between steps; not `sharded`: if all that can be were.
  int64_t HeldBytes(const RunConfig& run, bool sharded, int64_t stage);
  int64_t RecordedHeldBytes(const RunConfig& run, int64_t zero, int64_t stage);
  /// Of steps with no more micro batches than stages, which are few.
  const StageProgram& ProgramOfFew(const RunConfig& run, int64_t stage);
  /// Whether layers that are alike also are in what is recomputed of them.
  static bool SamePlanForAll(const RecomputeConfig& plan);
  /// Whether the stack keeps less than ours: what that saves, no bound knows.
  bool keeps_less() const;
  StepBound Finished(const RunConfig& run, const PriceSetting& setting, double seconds,
                     double messages_s, int64_t bytes) const;

  ModelConfig model_;
  Cluster cluster_;
  SharedCosts* costs_;
  PassSpans spans_;
  std::unordered_map<PackedKey, std::vector<StageProgram>, PackedKey::Hash> programs_;
};

}  // namespace trimtab
