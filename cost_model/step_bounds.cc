#include "cost_model/step_bounds.h"

#include <algorithm>
#include <numeric>

#include "cost_model/finish.h"
#include "cost_model/shared_cores.h"
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

/// Adds a chunk of a stage.
void Add(const WaySpans& ways, int64_t micro_batches, double& seconds, StageTimes& times) {
  const auto later = static_cast<double>(micro_batches - 1);
  for (const Way first : {kForwardFirst, kBackwardSetting, kInputSetting, kWeightSetting}) {
    seconds += ways[first].seconds + later * ways[first + 1].seconds;
  }
  times.forward += ways[kForwardLater].seconds;
  times.backward_input += ways[kBackwardAdding].seconds + ways[kInputAdding].seconds;
  times.backward_weight += ways[kWeightAdding].seconds;
}

/// Chunks of micro batches that a stage holds whole, at least. Backward passes in two parts free
/// memory with the first, and begin no later than those in one.
int64_t LeastInFlight(const RunConfig& run, int64_t stage) {
  const Schedule schedule =
      run.layout.schedule == Schedule::kZeroBubble ? Schedule::k1F1B : run.layout.schedule;
  const PipelineShape shape = {run.layout.pp, run.layout.vp, run.num_micro_batches()};
  return RowOf(schedule).max_in_flight(shape, stage);
}

/// What passes take, each at least: the first forward pass of a chunk, and a later one; and a
/// backward pass, or the part of it that frees what the forward pass left.
struct PassBytes {
  MemorySpan first = {INT64_MAX, INT64_MAX};
  MemorySpan later = {INT64_MAX, INT64_MAX};
  int64_t backward_peak = INT64_MAX;

  /// Of a chunk, whose passes also take `received` bytes before and give `sent` bytes away after.
  /// `alone`: its stage has no other. Of several, not all may have had their first pass when the
  /// stage holds the most.
  void Consider(const WaySpans& ways, int64_t received, int64_t sent, bool alone) {
    const auto lower = [&](MemorySpan& span, const MemorySpan& pass) {
      span.change = std::min(span.change, received + pass.change - sent);
      span.peak = std::min(span.peak, received + pass.peak);
    };
    lower(later, ways[kForwardLater].total);
    if (!alone) lower(first, ways[kForwardLater].total);
    lower(first, ways[kForwardFirst].total);
    // Of the parts and the whole, one is there.
    const auto peak = [&](Way whole, Way part) {
      return std::max(ways[whole].total.peak, ways[part].total.peak);
    };
    backward_peak = std::min({backward_peak, peak(kBackwardSetting, kInputSetting),
                              peak(kBackwardAdding, kInputAdding)});
  }
  /// The most that `in_flight` passes hold, the first ones of `chunks` among them. What comes next
  /// is a backward pass.
  int64_t Peak(int64_t in_flight, int64_t chunks) const {
    const int64_t firsts = std::min(in_flight, chunks);
    MemorySpan all = first.Times(firsts);
    if (in_flight > firsts) all = all.Then(later.Times(in_flight - firsts));
    return std::max<int64_t>({0, all.peak, all.change + backward_peak});
  }
};

/// Chunks of a stage, each as the first that is like it.
using StageChunks = std::vector<ModelChunk>;

/// The stages of which one is the fullest, by the chunks that each has: of like ones the first
/// holds the most micro batches.
std::vector<int64_t> StagesToWeigh(const std::vector<StageChunks>& stages) {
  std::vector<int64_t> weighed;
  for (auto stage = stages.begin(); stage != stages.end(); ++stage) {
    if (std::find(stages.begin(), stage, *stage) == stage)
      weighed.push_back(stage - stages.begin());
  }
  return weighed;
}

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

StepBounds::Moving StepBounds::MovingShards(const RunConfig& run, const PricedRun& sharded,
                                            const PlanRange& plans) {
  Moving moving;
  if (!MovesForNext(run.layout)) return moving;
  const bool range = plans.first != plans.leanest;
  if (!range) moving.few_layers.emplace(spans_.Of(sharded));
  const int64_t layers = std::min(CeilDiv(model_.num_layers, run.layout.pp * run.layout.vp),
                                  spans_.SettingOf(run).stretch.count);
  if (layers <= kFewLayers) return moving;
  if (!IsBlock(plans.first)) {
    if (!SamePlanForAll(plans.first)) return moving;
    moving.kept = MovingShardsOf(run, plans.first);
  } else {
    const int64_t recomputed = RecomputedOf(plans.first, layers);
    if (range || recomputed > kFewLayers) {
      moving.recomputed = MovingShardsOf(run, {.kind = RecomputeKind::kFull});
    }
    if (range || layers - recomputed > kFewLayers) moving.kept = MovingShardsOf(run, {});
  }
  moving.looked_at = true;
  return moving;
}

StepBounds::MovingLayer StepBounds::MovingShardsOf(const RunConfig& run,
                                                   const RecomputeConfig& plan) {
  PricedRun sharded = {run, run.layout};
  PricedRun whole = Unsharded(run);
  sharded.layout.recompute = plan;
  whole.layout.recompute = plan;
  const WaySpans& moved = spans_.Of(sharded).OfLayer();
  const WaySpans& still = spans_.Of(whole).OfLayer();
  MovingLayer layer;
  for (size_t way = 0; way < kWayCount; ++way) {
    layer.seconds[way] = std::max(0.0, moved[way].seconds - still[way].seconds);
  }
  for (const Way way : {kForwardFirst, kForwardLater}) {
    layer.bytes[way] = std::max<int64_t>(0, moved[way].total.change - still[way].total.change);
  }
  return layer;
}

void StepBounds::AddMoving(const Moving& moving, const PlanRange& plans, const ModelChunk& chunk,
                           const LayerRange& stretch, WaySpans& ways) const {
  if (!moving.looked_at) return;
  const auto add = [&ways](size_t way, int64_t layers, double seconds, int64_t bytes) {
    ways[way].seconds += static_cast<double>(layers) * seconds;
    MemorySpan& total = ways[way].total;
    total.change += layers * bytes;
    total.peak = std::max(total.peak, total.change);
  };
  const LayerRange all = {chunk.first_layer, chunk.num_layers};
  if (plans.first != plans.leanest) {
    // Wherever recomputed layers end: one of each kind is beside one of the other.
    const int64_t amid = std::max<int64_t>(0, LayersAmid(all, stretch) - 2);
    for (size_t way = 0; way < kWayCount; ++way) {
      add(way, amid, std::min(moving.recomputed.seconds[way], moving.kept.seconds[way]),
          std::min(moving.recomputed.bytes[way], moving.kept.bytes[way]));
    }
    return;
  }
  const int64_t count =
      IsBlock(plans.first) ? RecomputedOf(plans.first, chunk.num_layers) : int64_t{0};
  const int64_t recomputed = LayersAmid({all.first, count}, stretch);
  const int64_t kept = LayersAmid({all.first + count, all.count - count}, stretch);
  for (size_t way = 0; way < kWayCount; ++way) {
    add(way, recomputed, moving.recomputed.seconds[way], moving.recomputed.bytes[way]);
    add(way, kept, moving.kept.seconds[way], moving.kept.bytes[way]);
  }
}

StepBounds::Passes StepBounds::PassesOf(const PricedRun& priced, const PlanRange& plans,
                                        PassSpans::Shape shape,
                                        std::optional<PassSpans::Shape> leanest, Moving moving) {
  const int64_t micro_batches = priced.run.num_micro_batches();
  const ParallelConfig& layout = priced.layout;
  const int64_t pp = layout.pp;
  const std::vector<LayerRange> cut = CutLayers(model_.num_layers, pp * layout.vp, layout.stages);
  std::vector<double> seconds(static_cast<size_t>(pp));
  std::vector<StageTimes> times(static_cast<size_t>(pp), {0, 0, 0});
  StageTimes all = {0, 0, 0};
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
    AddMoving(moving, plans, chunk, shape.setting().stretch, ways);
    if (leanest) {
      const WaySpans& lean = leanest->Of(chunk);
      for (const Way way : {kForwardFirst, kForwardLater}) ways[way].total = lean[way].total;
    }
    const size_t stage = i % static_cast<size_t>(pp);
    Add(ways, micro_batches, seconds[stage], times[stage]);
    const int64_t received = chunk.embedding ? 0 : messages.activation_bytes;
    const int64_t sent = chunk.head ? 0 : messages.activation_bytes;
    bytes[stage].Consider(ways, received, sent, /*alone=*/layout.vp == 1);
    if (whole_for_parts) bytes[stage].backward_peak = 0;
    if (!alike) stages[stage].push_back(shape.Like(chunk));
  }
  for (const StageTimes& each : times) {
    all.forward += each.forward;
    all.backward_input += each.backward_input;
    all.backward_weight += each.backward_weight;
  }
  Passes passes;
  const PipelineShape pipeline = {pp, layout.vp, micro_batches};
  const ScheduleRow& schedule = RowOf(layout.schedule);
  const double crowding = Crowding(priced.run, cluster_);
  // Where stages share cores, these are never all idle; the slowest has one for each thread at
  // best.
  const double mean_s =
      std::accumulate(seconds.begin(), seconds.end(), 0.0) / static_cast<double>(pp);
  for (size_t i = 0; i < seconds.size(); ++i) {
    double stage_s = seconds[i];
    if (crowding > 1) {
      stage_s = std::max(mean_s, stage_s / crowding);
    } else if (pp > 1 && !whole_for_parts) {
      const auto others = static_cast<double>(pp - 1);
      const StageTimes mean = {(all.forward - times[i].forward) / others,
                               (all.backward_input - times[i].backward_input) / others,
                               (all.backward_weight - times[i].backward_weight) / others};
      stage_s += schedule.idle_time(pipeline, mean);
    }
    passes.seconds = std::max(passes.seconds, stage_s);
  }
  passes.messages_s = 2 * static_cast<double>(pp - 1) * messages.longer_s;
  // Among stages of like layers, one of those with more than layers.
  const std::vector<int64_t> ends = {0, pp - 1};
  for (const int64_t stage : alike ? ends : StagesToWeigh(stages)) {
    passes.bytes.push_back({stage, bytes[static_cast<size_t>(stage)].Peak(
                                       LeastInFlight(priced.run, stage), layout.vp)});
  }
  return passes;
}

StepBound StepBounds::OfPasses(const RunConfig& run, LayoutPart chosen, const PlanRange& plans) {
  const bool range = plans.first != plans.leanest;
  // How shards move beside a layer depends on what its neighbours recompute: of several plans,
  // moving them is looked at amid like ones alone.
  if (range) chosen = std::min(chosen, LayoutPart::kLayers);
  const auto with = [](PricedRun priced, const RecomputeConfig& plan) {
    priced.layout.recompute = plan;
    return priced;
  };
  const PricedRun priced = with(PassesToPrice(run, chosen), plans.first);
  const PricedRun leanest = with(PassesToPrice(run, chosen), plans.leanest);
  const PricedRun sharded = with({run, run.layout}, plans.first);
  const Passes passes = PassesOf(
      priced, plans, spans_.Of(priced), range ? std::optional(spans_.Of(leanest)) : std::nullopt,
      chosen == LayoutPart::kLayers ? MovingShards(run, sharded, plans) : Moving{});
  const bool known = chosen >= LayoutPart::kSharding;
  int64_t bytes = 0;
  for (const StageBytes& each : passes.bytes) {
    bytes = std::max(bytes, HeldBytes(run, known, each.stage) + each.bytes);
  }
  return Finished(run, spans_.SettingOf(run), passes.seconds, passes.messages_s, bytes);
}

int64_t StepBounds::HeldBytes(const RunConfig& run, bool sharded, int64_t stage) {
  const ParallelConfig& layout = run.layout;
  const PriceSetting& setting = spans_.SettingOf(run);
  // All that can be sharded is, unless it is known.
  const int64_t most = layout.dp * layout.cp > 1 ? 3 : 0;
  const int64_t zero = sharded ? layout.zero : most;
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
