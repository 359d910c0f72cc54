#include "cost_model/closed_form/step_bounds.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "cost_model/closed_form/stage_bounds.h"
#include "cost_model/finish.h"
#include "cost_model/shared_cores.h"
#include "engine/base/units.h"
#include "engine/config/rules/rules.h"
#include "engine/schedule/chunks.h"
#include "engine/schedule/schedules.h"

namespace trimtab {
namespace {

/// Sums in another order than the closed form's differ in their last digits.
constexpr double kRounding = 1e-9;

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

/// What the head's forward pass leaves: of the first micro batch, and of later ones.
std::array<int64_t, 2> HeadBytes(const ModelChunk& chunk, PassSpans::Shape& shape) {
  if (!chunk.head) return {};
  ModelChunk headless = chunk;
  headless.head = false;
  std::array<int64_t, 2> bytes{};
  for (const Way way : {kForwardFirst, kForwardLater}) {
    const size_t place = IsFirst(way) ? 0 : 1;
    bytes[place] = shape.Of(chunk)[way].total.change;
    bytes[place] -= shape.Of(headless)[way].total.change;
  }
  return bytes;
}

/// Seconds of the step's GEMMs over weights, divided evenly over all ranks at the peak rate. Zero
/// on a cpu, whose measured tables have no peak.
double LeastProductSeconds(const RunConfig& run, const Cluster& cluster) {
  if (cluster.device == DeviceKind::kCpu) return 0;
  double peak = 0;
  for (const auto& [precision, rate] : cluster.profile.peak_flops) {
    const bool is_fp8 = precision == Name(Precision::kFp8);
    if (!is_fp8 || TypesOf(run.layout.numerics).fp8) peak = std::max(peak, rate.value);
  }
  if (peak <= 0) return 0;
  const auto ranks = static_cast<double>(run.layout.world_size());
  // Of three products over a weight, a frozen one has two.
  const double share = run.frozen.empty() ? 1.0 : 2.0 / 3.0;
  return share * WeightFlops(run) / (peak * ranks);
}

}  // namespace

StepBound StepBounds::Of(const RunConfig& run, LayoutPart chosen, const PlanRange& plans) {
  if (chosen == LayoutPart::kNumerics) return {.step_time_s = LeastProductSeconds(run, cluster_)};
  spans_.ForgetIfMany();
  whole_.ForgetIfMany();
  if (chosen >= LayoutPart::kPipeline) return OfPasses(run, chosen, plans);
  if (chosen == LayoutPart::kParts) return OfAnyMicroBatch(run);
  return OfMicroBatch(run, chosen == LayoutPart::kPlans ? &plans : nullptr);
}

int64_t StepBounds::PlanRangeBytes::BytesOfEnds(const ModelChunk& chunk) {
  const int64_t left = leanest.Of(chunk)[kForwardLater].total.change;
  return std::max<int64_t>(0, left - chunk.num_layers * recomputed_layer.least_kept);
}

int64_t StepBounds::PlanRangeBytes::GatheredBytes() const {
  return std::max(recomputed_waits.bytes[kForwardFirst], recomputed_waits.bytes[kForwardLater]);
}

void StepBounds::PlanRangeBytes::Leave(const ModelChunk& chunk, WaySpans& ways) {
  const WaySpans& lean = leanest.Of(chunk);
  const int64_t layers = chunk.num_layers;
  const int64_t not_kept = (layers - CeilDiv(layers, largest_group)) * recomputed_layer.most_kept;
  for (const Way way : {kForwardFirst, kForwardLater}) {
    ways[way].total = {lean[way].total.change - not_kept, lean[way].total.peak - not_kept};
  }
  if (smallest_group == 1) return;
  // When a group runs again that has as many layers, the head is done, and the last group, which
  // may have fewer: their weights may be gone.
  const int64_t others = std::min(smallest_group, layers) - 1;
  const int64_t gone = recomputed_layer.most_kept + BytesOfEnds(chunk) +
                       (std::min(largest_group, layers) - 1) * GatheredBytes();
  int64_t peak = others * kept_layer.least_kept + recomputed_layer.least_backward_peak - gone;
  // What moves beside the group's last layer may be done while the others run again.
  if (others > 0) {
    peak = std::max(peak, peak - kept_layer.least_kept + recomputed_waits.backward_peak_bytes);
  }
  for (const Way way : {kBackwardSetting, kBackwardAdding, kInputSetting, kInputAdding}) {
    ways[way].total.peak = std::max(ways[way].total.peak, peak);
  }
}

void StepBounds::PlanRangeBytes::RaisePeaks(const ModelChunk& chunk, const LayerRange& stretch,
                                            WaySpans& ways) {
  if (smallest_group == 1) return;
  // Amid the layers of a group, which have run again, the last one but one goes backward as it
  // would had they been kept. Of the last group that has as many as the plan says, these are alike,
  // and so is the layer that is next.
  constexpr int64_t kLeastLayers = 4;
  const int64_t layers = chunk.num_layers;
  const int64_t end = chunk.first_layer + layers;
  const int64_t alike = end - std::max(chunk.first_layer, stretch.first);
  const bool to_the_end = stretch.first + stretch.count >= end;
  if (layers < kLeastLayers || !to_the_end) return;
  if (alike < std::min(layers, largest_group + kLeastLayers)) return;
  const int64_t others = std::min(smallest_group, layers) - 1;
  const int64_t left =
      2 * recomputed_layer.most_kept + BytesOfEnds(chunk) + largest_group * GatheredBytes();
  for (const Way way : {kBackwardSetting, kBackwardAdding, kInputSetting, kInputAdding}) {
    if (kept_waits.in_use_bytes[way] <= 0) continue;
    const int64_t above = others * kept_layer.least_kept + kept_waits.in_use_bytes[way] - left;
    ways[way].total.peak = std::max(ways[way].total.peak, above);
  }
}

StepBounds::ChunkPasses StepBounds::PassesOf(const ModelChunk& chunk, const RecomputeConfig& plan,
                                             bool several_micro_batches, PassSpans::Shape& shape,
                                             std::optional<PlanRangeBytes>& several,
                                             ShardWaits& waits) {
  const LayerRange stretch = shape.setting().stretch;
  const bool few = waits.few(chunk) && !waits.short_chunks_unsharded;
  WaySpans ways = few ? waits.short_chunks->Of(chunk) : shape.Of(chunk);
  int64_t left_for_weights = LeftForWeights(ways, several_micro_batches);
  if (waits.gradients_sharded) AddToNoGradients(ways);
  if (several) {
    const int64_t of_leanest = LeftForWeights(several->leanest.Of(chunk), several_micro_batches);
    left_for_weights = std::min(left_for_weights, of_leanest);
    several->Leave(chunk, ways);
    several->RaisePeaks(chunk, stretch, ways);
  }
  ways = waits.With(plan, chunk, stretch, ways);
  if (!several && (waits.recomputed || waits.kept)) {
    waits.RaisePeaks(plan, chunk, stretch, HeadBytes(chunk, shape), ways);
  }
  return {ways, left_for_weights};
}

StepBounds::Passes StepBounds::PassesOf(const PricedRun& priced, PassSpans::Shape shape,
                                        std::optional<PlanRangeBytes> several, ShardWaits waits,
                                        const std::vector<EndCosts>* ends) {
  const ParallelConfig& layout = priced.layout;
  const RecomputeConfig& plan = layout.recompute[0];
  const int64_t pp = layout.pp;
  const std::vector<LayerRange> cut = CutLayers(model_.num_layers, pp * layout.vp, layout.stages);
  const PipelineShape pipeline = {pp, layout.vp, priced.run.num_micro_batches()};
  const StageMessages messages = pp > 1 ? shape.Messages() : StageMessages{};
  StageSums sums(pipeline, messages.longer_s);
  std::vector<PassBytes> bytes(static_cast<size_t>(pp));
  std::vector<StageChunks> stages(static_cast<size_t>(pp));
  const bool alike = shape.setting().alike;
  const bool several_micro_batches = pipeline.micro_batches > 1;
  // Then nothing is said of what parts leave idle, nor of what they take above forward passes.
  const bool whole_for_parts = layout.schedule != priced.run.layout.schedule;
  const LayerRange stretch = shape.setting().stretch;
  const auto in_stretch = [&stretch](const ModelChunk& chunk) {
    return chunk.first_layer >= stretch.first &&
           chunk.first_layer + chunk.num_layers <= stretch.first + stretch.count;
  };
  ModelChunk before;
  ModelChunk like;
  ChunkPasses of_chunk;
  for (size_t i = 0; i < cut.size(); ++i) {
    const ModelChunk chunk = {cut[i].first, cut[i].count, i == 0, i + 1 == cut.size()};
    const bool same = i > 0 && in_stretch(chunk) && in_stretch(before) &&
                      chunk.num_layers == before.num_layers &&
                      chunk.embedding == before.embedding && chunk.head == before.head;
    if (!same) {
      of_chunk = PassesOf(chunk, plan, several_micro_batches, shape, several, waits);
      like = shape.Like(chunk);
    }
    before = chunk;
    const size_t stage = i % static_cast<size_t>(pp);
    sums.Add(stage, of_chunk.ways);
    const int64_t received = chunk.embedding ? 0 : messages.activation_bytes;
    const int64_t sent = chunk.head ? 0 : messages.activation_bytes;
    bytes[stage].Consider(of_chunk.ways, received, sent, several_micro_batches);
    bytes[stage].left_for_weights =
        std::min(bytes[stage].left_for_weights, of_chunk.left_for_weights);
    if (whole_for_parts) bytes[stage].backward_peak = bytes[stage].left_for_weights = 0;
    if (!alike) stages[stage].push_back(like);
  }
  for (size_t stage = 0; ends != nullptr && stage < ends->size(); ++stage) {
    sums.AddEnd(stage, layout, (*ends)[stage], shape.setting().pricer);
  }
  Passes passes;
  const double crowding = Crowding(priced.run, cluster_);
  if (crowding > 1) {
    passes.seconds = sums.SlowestOfCrowded(crowding);
  } else if (pp == 1 || whole_for_parts) {
    passes.seconds = sums.Busiest();
  } else {
    passes.seconds = sums.Slowest(layout.schedule, /*longer_weights=*/waits.gradients_sharded);
  }
  for (const int64_t stage : alike ? FullestOfAlike(cut, pp) : StagesToWeigh(stages)) {
    const InFlight in_flight = LeastInFlight(priced.run.layout.schedule, pipeline, stage);
    passes.bytes.push_back({stage, bytes[static_cast<size_t>(stage)].Peak(in_flight, layout.vp)});
  }
  return passes;
}

StepBound StepBounds::OfPasses(const RunConfig& run, LayoutPart chosen, const PlanRange& plans) {
  // Groups of layers are looked at as such only where all is chosen: recording them takes long.
  const bool one = plans.first == plans.leanest;
  const bool several = !one || (IsUniform(plans.first) && chosen < LayoutPart::kWhole);
  // How long a layer waits depends on what its neighbours recompute. Of several plans, it is looked
  // at amid like ones alone, beside what recomputes the most.
  if (several) chosen = std::min(chosen, LayoutPart::kWaits);
  const auto with = [](PricedRun priced, const RecomputeConfig& plan) {
    priced.layout.recompute = plan;
    return priced;
  };
  const auto first = several ? Ungrouped(plans.first) : plans.first;
  const PricedRun priced = with(PassesToPrice(run, chosen), first);
  const PricedRun leanest = with(priced, Ungrouped(plans.leanest));
  const RecomputeConfig heaviest = plans.leanest.kind == RecomputeKind::kFull && several
                                       ? RecomputeConfig{.kind = RecomputeKind::kFull}
                                       : plans.leanest;
  const PricedRun still = with(priced, heaviest);
  const PricedRun sharded = with({run, run.layout}, heaviest);
  const bool known = chosen >= LayoutPart::kSharding;
  ShardWaits waits = chosen == LayoutPart::kFirstWaits ? shard_waits_.OfFirst(run)
                     : chosen == LayoutPart::kWaits
                         ? shard_waits_.Of(sharded, several ? &still : nullptr, plans)
                         : ShardWaits{};
  waits.gradients_sharded = chosen < LayoutPart::kWhole && MostZero(run.layout, known) >= 2;
  std::optional<PlanRangeBytes> others;
  if (several) others.emplace(BytesOfRange(priced, leanest, plans));
  for (const std::optional<LayerWaits>& layer : {waits.any_layer, waits.recomputed}) {
    if (several && layer) others->recomputed_waits = *layer;
  }
  if (several && IsUniform(plans.first) && waits.kept) others->kept_waits = *waits.kept;
  PassSpans& spans = chosen == LayoutPart::kWhole ? whole_ : spans_;
  // Recording how a step ends takes longer than looking at its passes.
  const std::vector<EndCosts>* ends =
      chosen >= LayoutPart::kWaits ? &ends_->Of(spans_.SettingOf(run), run) : nullptr;
  const Passes passes =
      PassesOf(priced, spans.Of(priced), std::move(others), std::move(waits), ends);
  int64_t bytes = 0;
  for (const StageBytes& each : passes.bytes) {
    bytes = std::max(bytes, HeldBytes(run, known, each.stage) + each.bytes);
  }
  return Finished(run, spans_.SettingOf(run), passes.seconds, bytes);
}

StepBounds::PlanRangeBytes StepBounds::BytesOfRange(const PricedRun& priced,
                                                    const PricedRun& leanest,
                                                    const PlanRange& plans) {
  PlanRangeBytes several = {.leanest = spans_.Of(leanest)};
  if (!IsUniform(plans.leanest)) return several;
  PricedRun kept = priced;
  kept.layout.recompute = {};
  several.largest_group = plans.leanest.num_layers;
  several.smallest_group = IsUniform(plans.first) ? plans.first.num_layers : 1;
  several.recomputed_layer = several.leanest.BytesOfLayers();
  several.kept_layer = spans_.Of(kept).BytesOfLayers();
  return several;
}

int64_t StepBounds::HeldBytes(const RunConfig& run, bool sharded, int64_t stage) {
  const ParallelConfig& layout = run.layout;
  const PriceSetting& setting = spans_.SettingOf(run);
  const int64_t zero = MostZero(layout, sharded);
  // The space has stages as even as can be; of others nothing is remembered.
  if (!layout.stages.empty()) return RecordedHeldBytes(run, zero, stage);
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
                            .Put(run.optimizer.kind)
                            .Put(layout.numerics)
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
  const bool one = !TypesOf(layout.numerics).fp8 && held.layout.vp == 1;
  held.global_batch = layout.micro_batch * layout.dp * (one ? int64_t{1} : layout.pp);
  if (FirstBrokenRule(held) != nullptr) return 0;
  const PipelineShape shape = {layout.pp, held.layout.vp, held.num_micro_batches()};
  const StageProgram& program =
      programs_.Of(held.layout.schedule, shape)[static_cast<size_t>(stage)];
  const BytesByTag bytes = RecordHeld(held, stage, program, spans_.SettingOf(run).executor);
  return std::accumulate(bytes.begin(), bytes.end(), int64_t{0});
}

bool StepBounds::keeps_less() const {
  const SoftwareStack& stack = cluster_.stack;
  return stack.activations.value < 1 || stack.expert_activations.value < 1 || stack.fp8_layers ||
         stack.fp8_weights;
}

StepBound StepBounds::Finished(const RunConfig& run, const PriceSetting& setting, double seconds,
                               int64_t bytes) const {
  const SoftwareStack& stack = cluster_.stack;
  return {.step_time_s = StepSeconds(setting.pricer, seconds) * (1 - kRounding),
          .peak_mem_bytes = keeps_less() ? 0 : bytes + BytesBeyondOurs(run, stack, {})};
}

}  // namespace trimtab
