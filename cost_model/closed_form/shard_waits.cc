#include "cost_model/closed_form/shard_waits.h"

#include <algorithm>
#include <utility>

#include "cost_model/closed_form/short_groups.h"
#include "cost_model/closed_form/stage_bounds.h"
#include "engine/base/units.h"

namespace trimtab {
namespace {

/// Layers of a chunk that have an end of it, or another chunk, beside them.
constexpr int64_t kShortChunk = 2;

/// Layers of a chunk, and whether other pieces than like layers follow on either side.
struct Part {
  LayerRange layers;
  bool other_before = false;
  bool other_behind = false;
};

/// Of the layers those that stand in `stretch`, but for ones beside other pieces. At an end of the
/// chunk less is hidden than beside another layer.
int64_t InnerLayers(const Part& part, const LayerRange& stretch) {
  const int64_t end = part.layers.first + part.layers.count;
  const int64_t stretch_end = stretch.first + stretch.count;
  const int64_t before = part.other_before || part.layers.first < stretch.first ? 1 : 0;
  const int64_t behind = part.other_behind || end > stretch_end ? 1 : 0;
  const int64_t layers = std::min(end, stretch_end) - std::max(part.layers.first, stretch.first);
  return std::max<int64_t>(0, layers - before - behind);
}

/// Of a chunk of `layers` those that a plan of `full` recomputes: the first ones.
int64_t RecomputedOf(const RecomputeConfig& plan, int64_t layers) {
  return plan.num_layers < 0 ? layers : std::min<int64_t>(plan.num_layers, layers);
}

constexpr RecomputeConfig kFull = {.kind = RecomputeKind::kFull};

/// What passes that take `moved_s`, and `still_s` where nothing moves, wait for shards at least.
/// Of what they take longer, ops that are slowed do not count: where less runs again, other
/// messages may have slowed the same ones.
double WaitForShards(double moved_s, double still_s, double slowdown) {
  return std::max(0.0, moved_s - (1 + slowdown) * still_s);
}

}  // namespace

PricedRun Unsharded(const RunConfig& run) {
  PricedRun whole = {run, run.layout};
  const ParallelConfig none;
  whole.layout.zero = none.zero;
  whole.layout.shard = none.shard;
  whole.layout.reshard_after_forward = none.reshard_after_forward;
  whole.layout.overlap_param_gather = none.overlap_param_gather;
  return whole;
}

bool ShardWaits::few(const ModelChunk& chunk) const {
  return short_chunks && chunk.num_layers <= kShortChunk && !chunk.embedding && !chunk.head;
}

WaySpans ShardWaits::With(const RecomputeConfig& plan, const ModelChunk& chunk,
                          const LayerRange& stretch, WaySpans ways) {
  if (few(chunk)) {
    if (!short_chunks_unsharded) return ways;
    const WaySpans& moved = short_chunks->Of(chunk);
    WaySpans still = short_chunks_unsharded->Of(chunk);
    AddToNoGradients(still);
    for (size_t way = 0; way < kWayCount; ++way) {
      ways[way].seconds += WaitForShards(moved[way].seconds, still[way].seconds, slowdown);
    }
    return ways;
  }
  const auto add = [&ways](const std::optional<LayerWaits>& layer, int64_t layers) {
    if (!layer || layers <= 0) return;
    for (size_t way = 0; way < kWayCount; ++way) {
      ways[way].seconds += static_cast<double>(layers) * layer->seconds[way];
      MemorySpan& total = ways[way].total;
      total.change += layers * layer->bytes[way];
      total.peak = std::max(total.peak, total.change);
    }
  };
  const Part all = {{chunk.first_layer, chunk.num_layers}, chunk.embedding, chunk.head};
  // Wherever recomputed layers end: one of each kind is beside one of the other.
  add(any_layer, InnerLayers(all, stretch) - 2);
  const int64_t count = IsBlock(plan) ? RecomputedOf(plan, chunk.num_layers) : int64_t{0};
  const int64_t others = chunk.num_layers - count;
  add(recomputed,
      InnerLayers({{chunk.first_layer, count}, chunk.embedding, others > 0 || chunk.head},
                  stretch));
  add(kept,
      InnerLayers({{chunk.first_layer + count, others}, count > 0 || chunk.embedding, chunk.head},
                  stretch));
  add(inside_group,
      InnerLayers(all, stretch) - (kShownOfGroup - 1) * CeilDiv(chunk.num_layers, smallest_group));
  return ways;
}

void ShardWaits::RaisePeaks(const RecomputeConfig& plan, const ModelChunk& chunk,
                            const LayerRange& stretch, const std::array<int64_t, 2>& head_bytes,
                            WaySpans& ways) {
  const int64_t count = IsBlock(plan) ? RecomputedOf(plan, chunk.num_layers) : int64_t{0};
  int64_t stays = 0;
  for (const std::optional<LayerWaits>& layer : {recomputed, kept}) {
    if (layer) stays = std::max({stays, layer->bytes[kForwardFirst], layer->bytes[kForwardLater]});
  }
  const int64_t end = chunk.first_layer + chunk.num_layers;
  const auto raise = [&](const std::optional<LayerWaits>& layer, int64_t first, int64_t last) {
    first = std::max(first, stretch.first);
    last = std::min(last, stretch.first + stretch.count);
    // The last layer that has others like it on both sides; those behind it are done by then.
    if (!layer || last - first < 3) return;
    const int64_t behind = end - last + 1;
    for (const Way way : {kBackwardSetting, kBackwardAdding, kInputSetting, kInputAdding}) {
      if (layer->in_use_bytes[way] <= 0) continue;
      const int64_t left = behind * (most_kept_bytes + stays) + head_bytes[IsFirst(way) ? 0 : 1];
      ways[way].total.peak = std::max(ways[way].total.peak, layer->in_use_bytes[way] - left);
    }
  };
  raise(recomputed, chunk.first_layer, chunk.first_layer + count);
  raise(kept, chunk.first_layer + count, end);
}

int64_t ShardWaitBounds::MostLayersAlike(const RunConfig& run) {
  return std::min(CeilDiv(layers_, run.layout.pp * run.layout.vp),
                  spans_->SettingOf(run).stretch.count);
}

ShardWaits ShardWaitBounds::OfFirst(const RunConfig& run) {
  ShardWaits waits;
  if (!MovesForNext(run.layout) || MostLayersAlike(run) <= kShortChunk) return waits;
  // Beside a backward pass that recomputes, the most is hidden.
  waits.any_layer = OfLayer(run, kFull, /*later=*/false);
  return waits;
}

ShardWaits ShardWaitBounds::Of(const PricedRun& sharded, const PricedRun* still,
                               const PlanRange& plans) {
  const RunConfig& run = sharded.run;
  const RecomputeConfig& plan = sharded.layout.recompute[0];
  ShardWaits waits;
  if (!MovesForNext(run.layout)) return waits;
  waits.slowdown = spans_->SettingOf(run).pricer.slowdown();
  waits.short_chunks.emplace(spans_->Of(sharded));
  if (still != nullptr) waits.short_chunks_unsharded.emplace(spans_->Of(*still));
  const int64_t layers = MostLayersAlike(run);
  if (layers <= kShortChunk) return waits;
  if (still == nullptr) {
    PricedRun kept = Unsharded(run);
    kept.layout.recompute = {};
    waits.most_kept_bytes = spans_->Of(kept).BytesOfLayers().most_kept;
  }
  if (!IsBlock(plan)) {
    if (SamePlanForAll(plan)) waits.kept = OfLayer(run, plan);
    return waits;
  }
  const int64_t recomputed = RecomputedOf(plan, layers);
  if (recomputed > kShortChunk) waits.recomputed = OfLayer(run, kFull);
  if (still != nullptr) {
    waits.kept = IsUniform(plans.first) ? OfLayer(run, {}) : waits.recomputed;
  } else if (layers - recomputed > kShortChunk) {
    waits.kept = OfLayer(run, {});
  }
  const bool groups = IsUniform(plans.first) && plans.first.num_layers >= kShownOfGroup;
  if (groups && waits.recomputed && spans_->SettingOf(run).stretch.count >= 3 * kShownOfGroup) {
    waits.smallest_group = plans.first.num_layers;
    waits.inside_group = Within(run, *waits.recomputed);
  }
  return waits;
}

LayerWaits ShardWaitBounds::OfLayer(const RunConfig& run, const RecomputeConfig& plan, bool later) {
  PricedRun sharded = {run, run.layout};
  PricedRun whole = Unsharded(run);
  sharded.layout.recompute = plan;
  whole.layout.recompute = plan;
  const InnerSpans& amid = spans_->Of(sharded).OfLayer(later);
  const WaySpans& moved = amid.ways;
  WaySpans still = spans_->Of(whole).OfLayer().ways;
  AddToNoGradients(still);
  const double slowdown = spans_->SettingOf(run).pricer.slowdown();
  LayerWaits layer;
  for (size_t way = 0; way < kWayCount; ++way) {
    layer.seconds[way] = WaitForShards(moved[way].seconds, still[way].seconds, slowdown);
  }
  for (const Way way : {kForwardFirst, kForwardLater}) {
    layer.bytes[way] = std::max<int64_t>(0, moved[way].total.change - still[way].total.change);
  }
  for (const Way way : {kBackwardSetting, kBackwardAdding, kInputSetting, kInputAdding}) {
    if (moved[way].total.peak == 0) continue;
    const Way forward = IsFirst(way) ? kForwardFirst : kForwardLater;
    layer.in_use_bytes[way] = amid.begins[way] + moved[way].total.peak -
                              2 * moved[forward].total.change - layer.bytes[forward];
  }
  const bool has_later = HasLaterPasses(run.layout, run.num_micro_batches());
  for (const Way setting : {kBackwardSetting, kInputSetting}) {
    const size_t way = has_later ? setting + 1 : setting;
    layer.backward_peak_bytes =
        std::max(layer.backward_peak_bytes, moved[way].total.peak - still[way].total.peak);
  }
  if (later || !has_later) return layer;
  // Weights that do not stay are gathered for each micro batch.
  if (run.layout.zero == 3 && run.layout.reshard_after_forward) {
    layer.seconds[kForwardLater] = layer.seconds[kForwardFirst];
    layer.bytes[kForwardLater] = layer.bytes[kForwardFirst];
  }
  for (const Way setting : {kBackwardSetting, kInputSetting, kWeightSetting}) {
    layer.seconds[setting + 1] = layer.seconds[setting];
  }
  return layer;
}

LayerWaits ShardWaitBounds::Within(const RunConfig& run, const LayerWaits& alone) {
  PricedRun sharded = {run, run.layout};
  PricedRun whole = Unsharded(run);
  sharded.layout.recompute = UniformOf(kShownOfGroup);
  whole.layout.recompute = UniformOf(kShownOfGroup);
  const WaySpans& moved = spans_->Of(sharded).OfLayer().ways;
  WaySpans still = spans_->Of(whole).OfLayer().ways;
  AddToNoGradients(still);
  const double slowdown = spans_->SettingOf(run).pricer.slowdown();
  LayerWaits more;
  for (size_t way = 0; way < kWayCount; ++way) {
    const double wait_s = WaitForShards(moved[way].seconds, still[way].seconds, slowdown);
    more.seconds[way] = std::max(0.0, wait_s - alone.seconds[way]);
  }
  return more;
}

}  // namespace trimtab
