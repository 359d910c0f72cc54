// Lower bounds of what passes wait for shards of weights and gradients, and of the memory that
// these take meanwhile. docs/bounds.md derives them.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "cost_model/closed_form/pass_spans.h"
#include "cost_model/closed_form/plan_range.h"
#include "engine/config/run/run_config.h"

namespace trimtab {

/// Returns the run as if every rank had all weights and gradients.
PricedRun Unsharded(const RunConfig& run);

/// What sharding adds, at least, to an inner layer: one of the longest stretch of like layers with
/// like ones on both sides.
struct LayerWaits {
  std::array<double, kWayCount> seconds{};
  std::array<int64_t, kWayCount> bytes{};  // that a forward pass leaves: weights that stay
  int64_t backward_peak_bytes = 0;         // of a backward pass
  /// In use by a backward pass at its fullest, shards on their way included, above what forward
  /// passes of the layers up to this one left.
  std::array<int64_t, kWayCount> in_use_bytes{};
};

/// Waits for shards of the layers of one layout, as far as a bound knows them.
class ShardWaits {
 public:
  bool gradients_sharded = false;                // may be, where passes are looked at without that
  std::optional<LayerWaits> any_layer;           // of each, whatever it recomputes
  std::optional<LayerWaits> recomputed;          // of a layer that `full` recomputes,
  std::optional<LayerWaits> kept;                // and of one that it does not, or of another plan
  std::optional<LayerWaits> inside_group;        // more of a layer within a group, others around it
  int64_t smallest_group = 1;                    // layers of a group, but perhaps the last
  int64_t most_kept_bytes = 0;                   // by a layer, with one plan
  double slowdown = 0;                           // of ops, by messages beside them
  std::optional<PassSpans::Shape> short_chunks;  // chunks of few layers without ends, sharded
  std::optional<PassSpans::Shape> short_chunks_unsharded;  // the same not sharded, of several plans

  /// True if `chunk` is one of `short_chunks`.
  bool few(const ModelChunk& chunk) const;
  /// Adds waits to `ways`, the unsharded passes through `chunk`, which `plan` recomputes. Those of
  /// a short chunk with one plan have them already.
  WaySpans With(const RecomputeConfig& plan, const ModelChunk& chunk, const LayerRange& stretch,
                WaySpans ways);
  /// Raises the peaks of backward passes through `chunk` to what shards take in its last inner
  /// layer. The one `plan` says it of all layers; `head_bytes`: what the head's forward pass
  /// leaves.
  void RaisePeaks(const RecomputeConfig& plan, const ModelChunk& chunk, const LayerRange& stretch,
                  const std::array<int64_t, 2>& head_bytes, WaySpans& ways);
};

/// Not thread-safe: one per thread.
class ShardWaitBounds {
 public:
  /// `spans` must outlive it.
  ShardWaitBounds(int64_t model_layers, PassSpans& spans) : layers_(model_layers), spans_(&spans) {}

  /// Bounds waits with any plan, by the first micro batch of a step, which takes half as long to
  /// record.
  ShardWaits OfFirst(const RunConfig& run);
  /// Bounds waits with the plan of `sharded`, which is all of its run. Not null `still`: with any
  /// of `plans`, none of which recomputes more than that; it is the same run, unsharded.
  ShardWaits Of(const PricedRun& sharded, const PricedRun* still, const PlanRange& plans);

 private:
  /// Returns how many like layers a chunk has at most.
  int64_t MostLayersAlike(const RunConfig& run);
  /// Not `later`: by the first micro batch of a step alone.
  LayerWaits OfLayer(const RunConfig& run, const RecomputeConfig& plan, bool later = true);
  /// Returns what a layer within a group waits beyond `alone`.
  LayerWaits Within(const RunConfig& run, const LayerWaits& alone);

  int64_t layers_;
  PassSpans* spans_;
};

}  // namespace trimtab
