#include "cost_model/step_bounds.h"

#include <algorithm>

#include "cost_model/estimate.h"
#include "cost_model/finish.h"
#include "engine/config/rules.h"
#include "engine/schedule/chunks.h"
#include "engine/schedule/schedules.h"

namespace trimtab {
namespace {

/// Sums in another order than the closed form's differ in their last digits.
constexpr double kRounding = 1e-9;

double Lesser(const WayCosts& ways, Way first, Way later) {
  return std::min(ways[first].seconds(), ways[later].seconds());
}

/// A micro batch both ways, as cheaply as any schedule takes it.
double LeastSeconds(const WayCosts& ways) {
  return Lesser(ways, kForwardFirst, kForwardLater) +
         Lesser(ways, kBackwardSetting, kBackwardAdding);
}

/// Adds a chunk of a stage.
void Add(const WayCosts& ways, int64_t micro_batches, double& seconds, StageTimes& times) {
  const auto later = static_cast<double>(micro_batches - 1);
  for (const Way first : {kForwardFirst, kBackwardSetting, kInputSetting, kWeightSetting}) {
    seconds += ways[first].seconds() + later * ways[first + 1].seconds();
  }
  times.forward += ways[kForwardLater].seconds();
  times.backward_input += ways[kBackwardAdding].seconds() + ways[kInputAdding].seconds();
  times.backward_weight += ways[kWeightAdding].seconds();
}

/// Chunks of micro batches that a stage holds whole, at least. Backward passes in two parts free
/// memory with the first, and begin no later than those in one.
int64_t LeastInFlight(const RunConfig& run, int64_t stage) {
  const Schedule schedule =
      run.layout.schedule == Schedule::kZeroBubble ? Schedule::k1F1B : run.layout.schedule;
  const PipelineShape shape = {run.layout.pp, run.layout.vp, run.num_micro_batches()};
  return RowOf(schedule).max_in_flight(shape, stage);
}

/// Layers of micro batches that the first stage holds at once, at least, whichever pipeline the
/// ranks left are made.
int64_t LeastLayersHeld(const RunConfig& run) {
  int64_t least = run.model.num_layers;
  for (int64_t pp = 2; pp <= std::min(run.layout.dp, run.model.num_layers); ++pp) {
    if (run.layout.dp % pp != 0) continue;
    const int64_t micro_batches = run.global_batch * pp / (run.layout.micro_batch * run.layout.dp);
    const int64_t layers = CutLayers(run.model.num_layers, pp, {}).front().count;
    least = std::min(least, layers * std::min(pp, micro_batches));
  }
  return least;
}

/// What forward passes take, each at least: the first of a chunk, and a later one.
struct ForwardBytes {
  MemorySpan first = {INT64_MAX, INT64_MAX};
  MemorySpan later = {INT64_MAX, INT64_MAX};

  /// Of a chunk, whose passes also take `received` bytes before and give `sent` bytes away after.
  void Consider(const WayCosts& ways, int64_t received, int64_t sent) {
    const auto lower = [&](MemorySpan& span, const MemorySpan& pass) {
      span.change = std::min(span.change, received + pass.change - sent);
      span.peak = std::min(span.peak, received + pass.peak);
    };
    lower(later, ways[kForwardLater].total);
    lower(first, ways[kForwardLater].total);
    lower(first, ways[kForwardFirst].total);
  }
  /// The most that `in_flight` passes hold, the first ones of `chunks` among them.
  int64_t Peak(int64_t in_flight, int64_t chunks) const {
    const int64_t firsts = std::min(in_flight, chunks);
    MemorySpan all = first.Times(firsts);
    if (in_flight > firsts) all = all.Then(later.Times(in_flight - firsts));
    return std::max<int64_t>(0, all.peak);
  }
};

}  // namespace

StepBound StepBounds::Of(const RunConfig& run, LayoutPart chosen) {
  return chosen == LayoutPart::kMicroBatch ? OfMicroBatch(run) : OfPasses(run, chosen);
}

/// A rank does at least what it would if its part of the sequence were all of it.
StepBounds::Priced StepBounds::PartOfSequence(const RunConfig& run) {
  const int64_t cp = run.layout.cp;
  RunConfig alone = run;
  alone.sequence_length /= cp;
  alone.layout.cp = 1;
  alone.layout.cp_comm_type = CpCommType::kP2p;
  alone.layout.dp *= cp;
  alone.global_batch *= cp;
  ChunkCosts& chunks =
      cp == 1 ? *chunks_
              : shorter_.try_emplace(alone.sequence_length, cluster_, false).first->second;
  const PriceSetting& setting = chunks.SettingOf(alone);
  return {std::move(alone), chunks, setting};
}

StepBound StepBounds::OfMicroBatch(const RunConfig& run) {
  const auto& [alone, chunks, setting] = PartOfSequence(run);
  RunConfig one_batch = alone;
  one_batch.global_batch = alone.layout.micro_batch * alone.layout.dp;
  if (FirstBrokenRule(one_batch) != nullptr) return {};  // no such run could be recorded
  const ModelChunk whole = WholeModel(model_);
  const WayCosts& ways = chunks.Of(setting, alone, whole);
  // Pipelines divide layers as replicas do batches; idle stages only add to that.
  const double micro_batches = static_cast<double>(run.global_batch) /
                               static_cast<double>(run.layout.micro_batch * run.layout.dp);
  int64_t layer_bytes = 0;
  const RecomputeConfig& plan = run.layout.recompute[0];
  const bool alike = setting.alike && (plan.kind != RecomputeKind::kFull || plan.num_layers == -1);
  if (alike && model_.num_layers > 1) {
    ModelChunk fewer = whole;
    --fewer.num_layers;
    layer_bytes = ways[kForwardLater].total.change -
                  chunks.Of(setting, alone, fewer)[kForwardLater].total.change;
  }
  return Finished(
      run, setting, micro_batches * LeastSeconds(ways), 0,
      HeldBytes(setting, run, /*sharded=*/false, /*stage=*/0) + layer_bytes * LeastLayersHeld(run));
}

StepBounds::Passes StepBounds::PassesOf(const Priced& priced) {
  const auto& [run, chunks, setting] = priced;
  const ParallelConfig& layout = run.layout;
  const int64_t pp = layout.pp;
  const std::vector<LayerRange> cut = CutLayers(model_.num_layers, pp * layout.vp, layout.stages);
  std::vector<double> seconds(static_cast<size_t>(pp));
  std::vector<StageTimes> times(static_cast<size_t>(pp), {0, 0, 0});
  StageTimes all = {0, 0, 0};
  const MessageRecording messages = pp > 1 ? chunks.Messages(setting, run) : MessageRecording{};
  ForwardBytes first_stage;
  ForwardBytes last_stage;
  ModelChunk before;
  const WayCosts* ways = nullptr;
  for (size_t i = 0; i < cut.size(); ++i) {
    const ModelChunk chunk = {cut[i].first, cut[i].count, i == 0, i + 1 == cut.size()};
    const bool same = ways != nullptr && setting.alike && chunk.num_layers == before.num_layers &&
                      chunk.embedding == before.embedding && chunk.head == before.head;
    if (!same) ways = &chunks.Of(setting, run, chunk);
    before = chunk;
    const size_t stage = i % static_cast<size_t>(pp);
    Add(*ways, run.num_micro_batches(), seconds[stage], times[stage]);
    const int64_t received = chunk.embedding ? 0 : messages.activation.bytes;
    const int64_t sent = chunk.head ? 0 : messages.activation.bytes;
    if (stage == 0) first_stage.Consider(*ways, received, sent);
    if (stage + 1 == seconds.size()) last_stage.Consider(*ways, received, sent);
  }
  for (const StageTimes& each : times) {
    all.forward += each.forward;
    all.backward_input += each.backward_input;
    all.backward_weight += each.backward_weight;
  }
  Passes passes;
  const PipelineShape shape = {pp, layout.vp, run.num_micro_batches()};
  for (size_t i = 0; i < seconds.size(); ++i) {
    double idle_s = 0;
    if (pp > 1) {
      const auto others = static_cast<double>(pp - 1);
      const StageTimes mean = {(all.forward - times[i].forward) / others,
                               (all.backward_input - times[i].backward_input) / others,
                               (all.backward_weight - times[i].backward_weight) / others};
      idle_s = RowOf(layout.schedule).idle_time(shape, mean);
    }
    passes.seconds = std::max(passes.seconds, seconds[i] + idle_s);
  }
  if (pp > 1) {
    const double longer_s = std::max(setting.pricer.BetweenStages(messages.activation, layout),
                                     setting.pricer.BetweenStages(messages.gradient, layout));
    passes.messages_s = 2 * static_cast<double>(pp - 1) * longer_s;
  }
  passes.first_stage_bytes = first_stage.Peak(LeastInFlight(run, 0), layout.vp);
  passes.last_stage_bytes = last_stage.Peak(LeastInFlight(run, pp - 1), layout.vp);
  return passes;
}

StepBounds::Passes StepBounds::PassesOf(const RunConfig& run, LayoutPart chosen) {
  if (chosen == LayoutPart::kPipeline) return PassesOf(PartOfSequence(run));
  const PriceSetting& setting = chunks_->SettingOf(run);
  if (chosen == LayoutPart::kWhole) return PassesOf(Priced{run, *chunks_, setting});
  RunConfig unsharded = run;
  const ParallelConfig none;
  unsharded.layout.zero = none.zero;
  unsharded.layout.shard = none.shard;
  unsharded.layout.reshard_after_forward = none.reshard_after_forward;
  unsharded.layout.overlap_param_gather = none.overlap_param_gather;
  return PassesOf(Priced{std::move(unsharded), *chunks_, setting});
}

StepBound StepBounds::OfPasses(const RunConfig& run, LayoutPart chosen) {
  const PriceSetting& setting = chunks_->SettingOf(run);
  const Passes passes = PassesOf(run, chosen);
  const bool sharded = chosen >= LayoutPart::kSharding;
  const int64_t bytes =
      std::max(HeldBytes(setting, run, sharded, 0) + passes.first_stage_bytes,
               HeldBytes(setting, run, sharded, run.layout.pp - 1) + passes.last_stage_bytes);
  return Finished(run, setting, passes.seconds, passes.messages_s, bytes);
}

int64_t StepBounds::HeldBytes(const PriceSetting& setting, const RunConfig& run, bool sharded,
                              int64_t stage) {
  RunConfig held = run;
  ParallelConfig& layout = held.layout;
  if (!sharded) layout.zero = layout.dp * layout.cp > 1 ? 3 : 0;  // all that can be sharded is
  layout.recompute = {};
  layout.tp_overlap_chunks = 1;
  layout.schedule = Schedule::k1F1B;
  layout.vp = 1;
  held.global_batch = layout.micro_batch * layout.dp * layout.pp;
  if (FirstBrokenRule(held) != nullptr) return 0;
  const PackedKey key = PackedKey()
                            .Put(setting.number, 10)
                            .Put(layout.tp, 20)
                            .Put(layout.cp, 20)
                            .Put(layout.dp, 20)
                            .Put(layout.ep, 20)
                            .Put(layout.etp, 20)
                            .Put(layout.pp, 20)
                            .Put(layout.zero, 2)
                            .Put(layout.shard, 20)
                            .Put(layout.master)
                            .Put(layout.moments)
                            .Put(layout.gradients)
                            .Put(stage, 20);
  const auto [found, is_new] = held_.try_emplace(key, 0);
  if (is_new) {
    for (const int64_t bytes : RecordUpdate(held, stage, setting.executor).held) {
      found->second += bytes;
    }
  }
  return found->second;
}

StepBound StepBounds::Finished(const RunConfig& run, const PriceSetting& setting, double seconds,
                               double messages_s, int64_t bytes) const {
  Estimate estimate;
  estimate.breakdown_s.compute = seconds;
  estimate.breakdown_s.exposed_pp = messages_s;
  estimate.memory.peak_total = bytes;
  FinishEstimate(run, cluster_, setting.pricer, estimate);
  // A stack that keeps less than ours: what that saves is not known yet.
  const SoftwareStack& stack = cluster_.stack;
  const bool keeps_less = stack.activations.value < 1 || stack.expert_activations.value < 1 ||
                          stack.fp8_layers || stack.fp8_weights;
  return {.step_time_s = estimate.step_time_s * (1 - kRounding),
          .peak_mem_bytes = keeps_less ? 0 : estimate.memory.peak_total};
}

}  // namespace trimtab
