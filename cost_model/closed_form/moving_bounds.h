// What moving shards beside passes takes, at least.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "cost_model/closed_form/pass_spans.h"
#include "cost_model/closed_form/plan_range.h"
#include "engine/config/run/run_config.h"

namespace trimtab {

/// The run as if every rank had all weights and gradients.
PricedRun Unsharded(const RunConfig& run);

/// More of a layer of the longest stretch of like ones, amid others like it: time, what a forward
/// pass leaves, such as weights that stay, and what a backward pass needs meanwhile.
struct MovingLayer {
  std::array<double, kWayCount> seconds{};
  std::array<int64_t, kWayCount> bytes{};
  int64_t backward_peak_bytes = 0;
  /// What a backward pass has in use at its fullest, shards on their way included, above what
  /// forward passes of layers up to this one left.
  std::array<int64_t, kWayCount> in_use_bytes{};
};

/// As far as moving is looked at.
class Moving {
 public:
  bool gradients = false;  // whether they may be sharded, where passes are looked at without that
  std::optional<MovingLayer> least;            // of any layer
  std::optional<MovingLayer> recomputed;       // of a layer that `full` recomputes,
  std::optional<MovingLayer> kept;             // and of one that it does not, or of another plan
  std::optional<MovingLayer> within;           // more of a layer within a group, others around it
  int64_t least_together = 1;                  // layers of a group, but perhaps the last
  int64_t most_kept = 0;                       // of a layer, in bytes; of one plan
  double slowdown = 0;                         // of ops, by what moves beside them
  std::optional<PassSpans::Shape> few_layers;  // chunks without ends that have no more,
  std::optional<PassSpans::Shape> few_still;   // and of several plans, without moving

  /// Whether `chunk` is one of few layers.
  bool few(const ModelChunk& chunk) const;
  /// The ways through `chunk`, recomputed by `plan`. `ways` are those without moving, but of a
  /// chunk with few layers and one plan those with it.
  WaySpans With(const RecomputeConfig& plan, const ModelChunk& chunk, const LayerRange& stretch,
                WaySpans ways);
  /// What backward passes through `chunk`, all of whose layers its one `plan` says, need above what
  /// forward passes leave, of which the head's is `head_bytes`.
  void RaisePeaks(const RecomputeConfig& plan, const ModelChunk& chunk, const LayerRange& stretch,
                  const std::array<int64_t, 2>& head_bytes, WaySpans& ways);
};

/// Not thread-safe: one per thread.
class MovingBounds {
 public:
  /// `spans` must outlive it.
  MovingBounds(int64_t model_layers, PassSpans& spans) : layers_(model_layers), spans_(&spans) {}

  /// With any plan.
  Moving Least(const RunConfig& run);
  /// With the plan of `sharded`, which is the whole of its run. Beside `still`,
  /// the same without moving, with any of `plans`, none of which recomputes more.
  Moving Of(const PricedRun& sharded, const PricedRun* still, const PlanRange& plans);

 private:
  /// Of a chunk, at most.
  int64_t MostLayersAlike(const RunConfig& run);
  /// Not `later`: as far as the first micro batch of a step says, which is sooner known.
  MovingLayer OfLayer(const RunConfig& run, const RecomputeConfig& plan, bool later = true);
  /// More of a layer within a group than `alone`.
  MovingLayer Within(const RunConfig& run, const MovingLayer& alone);

  int64_t layers_;
  PassSpans* spans_;
};

}  // namespace trimtab
