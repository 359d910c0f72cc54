// The bounds of layouts whose pipeline is not chosen yet: what a micro batch takes, at least.
#include <algorithm>
#include <limits>
#include <vector>

#include "cost_model/closed_form/step_bounds.h"
#include "engine/base/units.h"
#include "engine/parameters/parameter.h"
#include "engine/schedule/chunks.h"

namespace trimtab {
namespace {

double Lesser(const WaySpans& ways, Way first, Way later) {
  return std::min(ways[first].seconds, ways[later].seconds);
}

/// A micro batch both ways, as cheaply as any schedule takes it.
double LeastSeconds(const WaySpans& ways) {
  return Lesser(ways, kForwardFirst, kForwardLater) +
         Lesser(ways, kBackwardSetting, kBackwardAdding);
}

/// The same of the first of a step, without the messages that chunks of `layout` may hide beside
/// their products. While nothing is sharded, later ones only have gradients to add to besides; and
/// no op takes longer whole than in chunks.
double LeastSecondsOfFirst(const WaySpans& ways, const ParallelConfig& layout) {
  double seconds = 0;
  for (const Way way : {kForwardFirst, kBackwardSetting}) {
    seconds += ways[way].seconds;
    if (layout.tp_overlap_chunks > 1) seconds -= ways[way].tensor_wait_s;
  }
  return seconds;
}

/// The first stage of a pipeline.
struct FirstStage {
  int64_t pp = 1;
  int64_t layers = 0;
  int64_t in_flight = 1;  // micro batches that it holds at once, at least
};

/// Of each pipeline that may be made of the ranks left.
std::vector<FirstStage> FirstStages(const RunConfig& run) {
  std::vector<FirstStage> stages = {{.pp = 1, .layers = run.model.num_layers}};
  for (int64_t pp = 2; pp <= std::min(run.layout.dp, run.model.num_layers); ++pp) {
    if (run.layout.dp % pp != 0) continue;
    const int64_t micro_batches = run.global_batch * pp / (run.layout.micro_batch * run.layout.dp);
    stages.push_back({.pp = pp,
                      .layers = CutLayers(run.model.num_layers, pp, {}).front().count,
                      .in_flight = std::min(pp, micro_batches)});
  }
  return stages;
}

/// Groups of `group` layers of micro batches that the first stage holds at once, at least.
int64_t LeastGroupsHeld(const RunConfig& run, int64_t group) {
  int64_t least = run.model.num_layers;
  for (const FirstStage& stage : FirstStages(run)) {
    least = std::min(least, CeilDiv(stage.layers, group) * stage.in_flight);
  }
  return least;
}

}  // namespace

StepBound StepBounds::OfAnyMicroBatch(const RunConfig& run) {
  const PriceSetting& setting = spans_.SettingOf(run);
  ParallelConfig together = run.layout;
  together.micro_batch = run.global_batch;
  together.tp_overlap_chunks = 1;
  // Replicas, and what a rank keeps of a parameter, make no difference to a pass.
  const PackedKey key =
      ChunkCosts::ShapeKey(setting, together, /*later=*/false, together.recompute[0])
          .Put(run.layout.tp_overlap_chunks > 1 ? 1 : 0, 1);
  const auto [known, is_new] = whole_batch_s_.try_emplace(key);
  if (is_new) known->second = WholeBatchSeconds(run, together);
  if (!known->second) return {};
  // Memory held between steps is bounded later, for the layouts that are left: setting up a whole
  // rank takes longer than recording a layer of each kind.
  return Finished(run, setting, *known->second / static_cast<double>(run.layout.dp), 0);
}

std::optional<double> StepBounds::WholeBatchSeconds(const RunConfig& run,
                                                    const ParallelConfig& together) {
  RunConfig whole = run;
  whole.layout = together;
  const PricedRun priced = {whole, whole.layout};
  PassSpans::Shape shape = spans_.Of(priced);
  if (!shape.legal()) return std::nullopt;
  // Twice the work may take more than twice as long on a cpu, because of its caches. The surplus
  // rows of the fullest experts are rounded, which gives few experts less than their share.
  const bool rounds = run.model.moe.used() && run.routing.imbalance_factor != 1;
  if (cluster_.device == DeviceKind::kCpu || rounds) return 0;
  return LeastSecondsOfFirst(shape.OfFirst(WholeModel(model_)), run.layout);
}

StepBound StepBounds::OfMicroBatch(const RunConfig& run, const PlanRange* plans) {
  PricedRun priced = {run, run.layout};
  // A pipeline recomputes as many layers of each stage as the whole model does of its first ones.
  priced.layout.recompute = plans == nullptr ? RecomputeConfig{} : Ungrouped(plans->first);
  PassSpans::Shape shape = spans_.Of(priced);
  if (!shape.legal()) return {};  // no such run could be recorded
  const ModelChunk whole = WholeModel(model_);
  const WaySpans ways = shape.Of(whole);
  // Pipelines divide layers as replicas do batches; idle stages only add to that.
  const double micro_batches = static_cast<double>(run.global_batch) /
                               static_cast<double>(run.layout.micro_batch * run.layout.dp);
  int64_t bytes = LeastHeldBytes(run);
  if (plans != nullptr) bytes += LeastPassBytes(run, plans->leanest);
  double seconds = LeastSeconds(ways);
  const bool range = plans != nullptr && plans->first != plans->leanest;
  if (range && IsBlock(plans->first) && run.memory_per_rank_bytes > 0 && !keeps_less()) {
    seconds = std::max(seconds, LeastSecondsThatFit(run));
  }
  return Finished(run, shape.setting(), micro_batches * seconds, bytes);
}

int64_t StepBounds::LeastHeldBytes(const RunConfig& run) {
  // Parameters are filled up to a multiple of the ranks that share them: of a pipeline's stages
  // fewer are, and less is filled up. A layer's experts are a unit of their own, and so is what is
  // frozen of each unit.
  constexpr int64_t kBytesOfAnElement = 5 * sizeof(float);  // weight, gradient, master, two moments
  const int64_t units = (2 * run.model.num_layers + 2) * (run.frozen.empty() ? 1 : 2);
  const int64_t filled_up = units * kParameterAlignment * kBytesOfAnElement;
  return HeldBytes(run, /*sharded=*/false, /*stage=*/0) - filled_up;
}

double StepBounds::LeastSecondsThatFit(const RunConfig& run) {
  PricedRun kept = {run, run.layout};
  kept.layout.recompute = {};
  PricedRun again = kept;
  again.layout.recompute = RecomputeConfig{.kind = RecomputeKind::kFull};
  PassSpans::Shape kept_shape = spans_.Of(kept);
  PassSpans::Shape again_shape = spans_.Of(again);
  const int64_t input_bytes = again_shape.BytesOfLayers().least_kept;
  const int64_t layer_bytes = kept_shape.BytesOfLayers().least_kept;
  const int64_t held = LeastHeldBytes(run);
  const int64_t room =
      run.memory_per_rank_bytes - Finished(run, kept_shape.setting(), 0, held).peak_mem_bytes;
  double layer_s = std::numeric_limits<double>::infinity();
  kept_shape.ForEachKind([&](const ModelChunk& layer) {
    layer_s =
        std::min(layer_s, LeastSeconds(again_shape.Of(layer)) - LeastSeconds(kept_shape.Of(layer)));
  });
  int64_t least = run.model.num_layers;
  for (const FirstStage& stage : FirstStages(run)) {
    // Of its first layers, so many that the rest leaves room.
    const int64_t passes = std::max<int64_t>(1, stage.in_flight);
    const int64_t over = passes * stage.layers * layer_bytes - room;
    const int64_t freed = std::max<int64_t>(1, passes * (layer_bytes - input_bytes));
    const int64_t layers = over <= 0 ? 0 : CeilDiv(over, freed);
    if (layers <= stage.layers) {
      least = std::min(least, stage.pp * std::min(layers, run.model.num_layers / stage.pp));
    }
  }
  return LeastSeconds(kept_shape.Of(WholeModel(model_))) +
         static_cast<double>(least) * std::max(0.0, layer_s);
}

int64_t StepBounds::LeastPassBytes(const RunConfig& run, const RecomputeConfig& leanest) {
  PricedRun priced = {run, run.layout};
  priced.layout.recompute = leanest;
  // Of a part of the layers: as if all were recomputed. Of a group of them, the first one's input
  // is held.
  if (!SamePlanForAll(leanest)) {
    priced.layout.recompute = RecomputeConfig{.kind = RecomputeKind::kFull};
  }
  PassSpans::Shape shape = spans_.Of(priced);
  const bool groups = leanest.method == RecomputeMethod::kUniform;
  return shape.BytesOfLayers().least_kept * LeastGroupsHeld(run, groups ? leanest.num_layers : 1);
}

}  // namespace trimtab
