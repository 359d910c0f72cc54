#include "cost_model/step_bounds.h"

#include <algorithm>
#include <numeric>

#include "cost_model/finish.h"
#include "cost_model/shared_cores.h"
#include "cost_model/stage_bounds.h"
#include "engine/base/units.h"
#include "engine/config/rules.h"
#include "engine/schedule/chunks.h"
#include "engine/schedule/schedules.h"

namespace trimtab {
namespace {

/// Sums in another order than the closed form's differ in their last digits.
constexpr double kRounding = 1e-9;

/// Layers of a chunk that have an end of it, or another chunk, beside them.
constexpr int64_t kFewLayers = 2;

/// Of `layers` of the model those that stand in `stretch`, but for the ones at the ends of that.
int64_t LayersAmid(const LayerRange& layers, const LayerRange& stretch) {
  const int64_t first = std::max(layers.first, stretch.first);
  const int64_t end = std::min(layers.first + layers.count, stretch.first + stretch.count);
  return std::max<int64_t>(0, end - first - kFewLayers);
}

/// Of a chunk of `layers` those that a plan of `full` recomputes: the first ones.
int64_t RecomputedOf(const RecomputeConfig& plan, int64_t layers) {
  return plan.num_layers < 0 ? layers : std::min<int64_t>(plan.num_layers, layers);
}

bool IsBlock(const RecomputeConfig& plan) {
  return plan.kind == RecomputeKind::kFull && plan.method == RecomputeMethod::kBlock;
}

/// The run as if every rank had all weights and gradients.
PricedRun Unsharded(const RunConfig& run) {
  PricedRun whole = {run, run.layout};
  const ParallelConfig none;
  whole.layout.zero = none.zero;
  whole.layout.shard = none.shard;
  whole.layout.reshard_after_forward = none.reshard_after_forward;
  whole.layout.overlap_param_gather = none.overlap_param_gather;
  return whole;
}

/// What the run may shard at most; not `known`: what of its layout is chosen does not say.
int64_t MostZero(const ParallelConfig& layout, bool known) {
  if (known) return layout.zero;
  return layout.dp * layout.cp > 1 ? 3 : 0;
}

/// `run` as a bound looks at its passes. Backward passes in two parts take no less than whole ones.
PricedRun PassesToPrice(const RunConfig& run, LayoutPart chosen) {
  PricedRun priced = chosen < LayoutPart::kWhole ? Unsharded(run) : PricedRun{run, run.layout};
  if (chosen == LayoutPart::kPipeline && run.layout.schedule == Schedule::kZeroBubble) {
    priced.layout.schedule = Schedule::k1F1B;
  }
  return priced;
}

}  // namespace

StepBound StepBounds::Of(const RunConfig& run, LayoutPart chosen, const PlanRange& plans) {
  spans_.ForgetIfMany();
  if (chosen >= LayoutPart::kPipeline) return OfPasses(run, chosen, plans);
  if (chosen == LayoutPart::kParts) return OfAnyMicroBatch(run);
  return OfMicroBatch(run, chosen == LayoutPart::kMicroBatch ? &plans : nullptr);
}

int64_t StepBounds::MostLayersAlike(const RunConfig& run) {
  return std::min(CeilDiv(model_.num_layers, run.layout.pp * run.layout.vp),
                  spans_.SettingOf(run).stretch.count);
}

StepBounds::Moving StepBounds::LeastMoving(const RunConfig& run) {
  Moving moving;
  if (!MovesForNext(run.layout) || MostLayersAlike(run) <= kFewLayers) return moving;
  // Beside a backward pass that recomputes, the most is hidden.
  moving.least = MovingShardsOf(run, {.kind = RecomputeKind::kFull}, /*later=*/false);
  return moving;
}

StepBounds::Moving StepBounds::MovingShards(const RunConfig& run, const PricedRun& sharded,
                                            const RecomputeConfig& plan) {
  Moving moving;
  if (!MovesForNext(run.layout)) return moving;
  moving.few_layers.emplace(spans_.Of(sharded));
  const int64_t layers = MostLayersAlike(run);
  if (layers <= kFewLayers) return moving;
  if (IsBlock(plan)) {
    const int64_t recomputed = RecomputedOf(plan, layers);
    if (recomputed > kFewLayers) {
      moving.recomputed = MovingShardsOf(run, {.kind = RecomputeKind::kFull});
    }
    if (layers - recomputed > kFewLayers) moving.kept = MovingShardsOf(run, {});
  } else if (SamePlanForAll(plan)) {
    moving.kept = MovingShardsOf(run, plan);
  }
  return moving;
}

StepBounds::MovingLayer StepBounds::MovingShardsOf(const RunConfig& run,
                                                   const RecomputeConfig& plan, bool later) {
  PricedRun sharded = {run, run.layout};
  PricedRun whole = Unsharded(run);
  sharded.layout.recompute = plan;
  whole.layout.recompute = plan;
  const WaySpans& moved = spans_.Of(sharded).OfLayer(later);
  WaySpans still = spans_.Of(whole).OfLayer(/*later=*/true);
  AddToNoGradients(still);
  MovingLayer layer;
  for (size_t way = 0; way < kWayCount; ++way) {
    layer.seconds[way] = std::max(0.0, moved[way].seconds - still[way].seconds);
  }
  for (const Way way : {kForwardFirst, kForwardLater}) {
    layer.bytes[way] = std::max<int64_t>(0, moved[way].total.change - still[way].total.change);
  }
  if (later) return layer;
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

void StepBounds::AddMoving(const Moving& moving, const RecomputeConfig& plan,
                           const ModelChunk& chunk, const LayerRange& stretch, WaySpans& ways) {
  const auto add = [&ways](const std::optional<MovingLayer>& layer, int64_t layers) {
    if (!layer || layers <= 0) return;
    for (size_t way = 0; way < kWayCount; ++way) {
      ways[way].seconds += static_cast<double>(layers) * layer->seconds[way];
      MemorySpan& total = ways[way].total;
      total.change += layers * layer->bytes[way];
      total.peak = std::max(total.peak, total.change);
    }
  };
  const LayerRange all = {chunk.first_layer, chunk.num_layers};
  // Wherever recomputed layers end: one of each kind is beside one of the other.
  add(moving.least, LayersAmid(all, stretch) - 2);
  const int64_t count = IsBlock(plan) ? RecomputedOf(plan, chunk.num_layers) : int64_t{0};
  add(moving.recomputed, LayersAmid({all.first, count}, stretch));
  add(moving.kept, LayersAmid({all.first + count, all.count - count}, stretch));
}

StepBounds::Passes StepBounds::PassesOf(const PricedRun& priced, PassSpans::Shape shape,
                                        std::optional<PassSpans::Shape> leanest, Moving moving) {
  const ParallelConfig& layout = priced.layout;
  const RecomputeConfig& plan = layout.recompute[0];
  const int64_t pp = layout.pp;
  const std::vector<LayerRange> cut = CutLayers(model_.num_layers, pp * layout.vp, layout.stages);
  const PipelineShape pipeline = {pp, layout.vp, priced.run.num_micro_batches()};
  StageSums sums(pipeline);
  const StageMessages messages = pp > 1 ? shape.Messages() : StageMessages{};
  std::vector<PassBytes> bytes(static_cast<size_t>(pp));
  std::vector<StageChunks> stages(static_cast<size_t>(pp));
  const bool alike = shape.setting().alike;
  // Then nothing is said of what parts leave idle, nor of what they take above forward passes.
  const bool whole_for_parts = layout.schedule != priced.run.layout.schedule;
  ModelChunk before;
  const WaySpans* of_chunk = nullptr;
  for (size_t i = 0; i < cut.size(); ++i) {
    const ModelChunk chunk = {cut[i].first, cut[i].count, i == 0, i + 1 == cut.size()};
    const bool same = of_chunk != nullptr && alike && chunk.num_layers == before.num_layers &&
                      chunk.embedding == before.embedding && chunk.head == before.head;
    const bool moved =
        moving.few_layers && chunk.num_layers <= kFewLayers && !chunk.embedding && !chunk.head;
    if (!same) of_chunk = moved ? &moving.few_layers->Of(chunk) : &shape.Of(chunk);
    before = chunk;
    WaySpans ways = *of_chunk;
    if (moving.gradients) AddToNoGradients(ways);
    AddMoving(moving, plan, chunk, shape.setting().stretch, ways);
    if (leanest) {
      const WaySpans& lean = leanest->Of(chunk);
      for (const Way way : {kForwardFirst, kForwardLater}) ways[way].total = lean[way].total;
    }
    const size_t stage = i % static_cast<size_t>(pp);
    sums.Add(stage, ways);
    const int64_t received = chunk.embedding ? 0 : messages.activation_bytes;
    const int64_t sent = chunk.head ? 0 : messages.activation_bytes;
    bytes[stage].Consider(ways, received, sent, /*alone=*/layout.vp == 1);
    if (whole_for_parts) bytes[stage].backward_peak = 0;
    if (!alike) stages[stage].push_back(shape.Like(chunk));
  }
  Passes passes;
  const double crowding = Crowding(priced.run, cluster_);
  if (crowding > 1) {
    passes.seconds = sums.SlowestOfCrowded(crowding);
  } else if (pp == 1 || whole_for_parts) {
    passes.seconds = sums.Busiest();
  } else {
    passes.seconds = sums.Slowest(layout.schedule, /*longer_weights=*/moving.gradients);
  }
  passes.messages_s = 2 * static_cast<double>(pp - 1) * messages.longer_s;
  // Among stages of like layers, one of those with more than layers.
  const std::vector<int64_t> ends = {0, pp - 1};
  for (const int64_t stage : alike ? ends : StagesToWeigh(stages)) {
    const int64_t in_flight = LeastInFlight(priced.run.layout.schedule, pipeline, stage);
    passes.bytes.push_back({stage, bytes[static_cast<size_t>(stage)].Peak(in_flight, layout.vp)});
  }
  return passes;
}

StepBound StepBounds::OfPasses(const RunConfig& run, LayoutPart chosen, const PlanRange& plans) {
  const bool range = plans.first != plans.leanest;
  // How shards move beside a layer depends on what its neighbours recompute: of several plans,
  // moving them is looked at amid like ones alone.
  if (range) chosen = std::min(chosen, LayoutPart::kMoving);
  const auto with = [](PricedRun priced, const RecomputeConfig& plan) {
    priced.layout.recompute = plan;
    return priced;
  };
  const PricedRun priced = with(PassesToPrice(run, chosen), plans.first);
  const PricedRun leanest = with(PassesToPrice(run, chosen), plans.leanest);
  const PricedRun sharded = with({run, run.layout}, plans.first);
  const bool known = chosen >= LayoutPart::kSharding;
  Moving moving = chosen == LayoutPart::kMoving   ? LeastMoving(run)
                  : chosen == LayoutPart::kLayers ? MovingShards(run, sharded, plans.first)
                                                  : Moving{};
  moving.gradients = chosen < LayoutPart::kWhole && MostZero(run.layout, known) >= 2;
  const Passes passes =
      PassesOf(priced, spans_.Of(priced), range ? std::optional(spans_.Of(leanest)) : std::nullopt,
               std::move(moving));
  int64_t bytes = 0;
  for (const StageBytes& each : passes.bytes) {
    bytes = std::max(bytes, HeldBytes(run, known, each.stage) + each.bytes);
  }
  return Finished(run, spans_.SettingOf(run), passes.seconds, passes.messages_s, bytes);
}

int64_t StepBounds::HeldBytes(const RunConfig& run, bool sharded, int64_t stage) {
  const ParallelConfig& layout = run.layout;
  const PriceSetting& setting = spans_.SettingOf(run);
  const int64_t zero = MostZero(layout, sharded);
  const PackedKey key = PackedKey()
                            .Put(setting.number, 10)
                            .Put(layout.tp, 20)
                            .Put(layout.cp, 20)
                            .Put(layout.dp, 20)
                            .Put(layout.ep, 20)
                            .Put(layout.etp, 20)
                            .Put(layout.pp, 20)
                            .Put(setting.alike ? 1 : layout.vp, 20)
                            .Put(zero, 2)
                            .Put(layout.shard, 20)
                            .Put(layout.master)
                            .Put(layout.moments)
                            .Put(layout.gradients)
                            .Put(stage, 20);
  return costs_->held().Get(key, [&] { return RecordedHeldBytes(run, zero, stage); });
}

int64_t StepBounds::RecordedHeldBytes(const RunConfig& run, int64_t zero, int64_t stage) {
  const ParallelConfig& layout = run.layout;
  RunConfig held = run;
  held.layout.zero = zero;
  held.layout.recompute = {};
  held.layout.tp_overlap_chunks = 1;
  // How many chunks a stage has matters where these differ.
  if (spans_.SettingOf(run).alike) held.layout.vp = 1;
  if (held.layout.vp == 1) held.layout.schedule = Schedule::k1F1B;
  // fp8 has scales for each micro batch in flight; interleaved schedules go in rounds.
  const bool one = !TypesOf(layout).fp8 && held.layout.vp == 1;
  held.global_batch = layout.micro_batch * layout.dp * (one ? int64_t{1} : layout.pp);
  if (FirstBrokenRule(held) != nullptr) return 0;
  const BytesByTag bytes =
      RecordHeld(held, stage, ProgramOfFew(held, stage), spans_.SettingOf(run).executor);
  return std::accumulate(bytes.begin(), bytes.end(), int64_t{0});
}

const StageProgram& StepBounds::ProgramOfFew(const RunConfig& run, int64_t stage) {
  const ParallelConfig& layout = run.layout;
  const PipelineShape shape = {layout.pp, layout.vp, run.num_micro_batches()};
  const PackedKey key = PackedKey()
                            .Put(layout.schedule)
                            .Put(shape.pp, 20)
                            .Put(shape.vp, 20)
                            .Put(shape.micro_batches, 20);
  const auto [known, is_new] = programs_.try_emplace(key);
  if (is_new) known->second = PlanPipeline(layout.schedule, shape);
  return known->second[static_cast<size_t>(stage)];
}

bool StepBounds::SamePlanForAll(const RecomputeConfig& plan) {
  return plan.kind != RecomputeKind::kFull || plan.num_layers == -1;
}

bool StepBounds::keeps_less() const {
  const SoftwareStack& stack = cluster_.stack;
  return stack.activations.value < 1 || stack.expert_activations.value < 1 || stack.fp8_layers ||
         stack.fp8_weights;
}

StepBound StepBounds::Finished(const RunConfig& run, const PriceSetting& setting, double seconds,
                               double messages_s, int64_t bytes) const {
  const SoftwareStack& stack = cluster_.stack;
  return {.step_time_s = StepSeconds(setting.pricer, seconds + messages_s) * (1 - kRounding),
          .peak_mem_bytes = keeps_less() ? 0 : bytes + BytesBeyondOurs(run, stack, {})};
}

}  // namespace trimtab
