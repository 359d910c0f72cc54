#include "cost_model/closed_form/stage_costs.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "cost_model/closed_form/pipeline_programs.h"
#include "cost_model/closed_form/stage_plan.h"
#include "engine/base/error.h"
#include "engine/runtime/chunks.h"
#include "engine/schedule/pipeline.h"

namespace trimtab {
namespace {

/// By how much a pass is longer than its recordings, for messages of a group.
struct Backlog {
  size_t group = 0;
  double seconds = 0;
};

/// Messages of a group that go one way go one after the other, and a pass takes at least as long as
/// those beside it. Waits in recordings are of layers amid few others, which have no backlog yet.
Backlog BacklogOf(const PieceCost& pass) {
  Backlog backlog;
  const double seconds = pass.seconds();
  for (size_t group = 0; group < pass.beside_s.size(); ++group) {
    const double longer_s = std::ranges::max(pass.beside_s[group]) - seconds;
    if (longer_s > backlog.seconds) backlog = {group, longer_s};
  }
  return backlog;
}

/// Pipelines whose stages are remembered: some megabytes.
constexpr size_t kMostPipelines = size_t{1} << 9;

}  // namespace

class StepCosts::Impl {
 public:
  Impl(const ModelConfig& model, int64_t sequence_length, ChunkCosts& chunks, StepEnds& ends)
      : model_(model), sequence_(sequence_length), chunks_(chunks), ends_(ends) {}

  StepView Of(const RunConfig& run);
  void PricesChanged() {
    ++prices_;
    ends_.PricesChanged();
  }

 private:
  /// Whether prices may be set.
  bool keeps() const { return chunks_.remembered() == Remembered::kRecordings; }
  PackedKey PipelineKey(const PriceSetting& setting, const RunConfig& run);
  std::vector<const WayCosts*> ChunksOfStage(const PriceSetting& setting, const RunConfig& run,
                                             int64_t pp_rank);
  std::vector<StagePlan> PlanStages(const PriceSetting& setting, const RunConfig& run);
  std::vector<StageCosts> PriceStages(const PriceSetting& setting, const RunConfig& run,
                                      const std::vector<StagePlan>& plans);
  const std::vector<StageCosts>& StagesOf(const PriceSetting& setting, const RunConfig& run);

  /// The stages of a pipeline. Plans stay if recordings are kept.
  struct Stages {
    std::vector<StagePlan> plans;
    std::vector<StageCosts> costs;
    int64_t prices = 0;
  };

  ModelConfig model_;
  int64_t sequence_;
  int64_t prices_ = 0;  // how often they were set
  ChunkCosts& chunks_;
  const PriceSetting* last_setting_ = nullptr;
  std::vector<StageLayers> stage_layers_;  // lists that were met
  std::vector<StageRecompute> stage_recompute_;
  PipelinePrograms programs_;
  std::unordered_map<PackedKey, Stages, PackedKey::Hash> stages_;
  StepEnds& ends_;
};

PackedKey StepCosts::Impl::PipelineKey(const PriceSetting& setting, const RunConfig& run) {
  const ParallelConfig& layout = run.layout;
  const bool later = HasLaterPasses(layout, run.num_micro_batches());
  return ChunkCosts::ShapeKey(setting, layout, later, layout.recompute[0])
      .Put(layout.schedule)
      .Put(run.num_micro_batches(), 40)
      .Put(layout.dp, 20)
      .Put(layout.pp, 20)
      .Put(layout.vp, 20)
      .Put(NumberOf(layout.stages, stage_layers_), 20)
      .Put(NumberOf(layout.recompute, stage_recompute_), 20);
}

std::vector<const WayCosts*> StepCosts::Impl::ChunksOfStage(const PriceSetting& setting,
                                                            const RunConfig& run, int64_t pp_rank) {
  RunConfig own = run;
  own.layout.recompute = run.layout.recompute[pp_rank];
  std::vector<const WayCosts*> chunks;
  for (const ModelChunk& chunk : ChunksOf(run, pp_rank)) {
    chunks.push_back(&chunks_.Of(setting, own, chunk));
  }
  return chunks;
}

std::vector<StagePlan> StepCosts::Impl::PlanStages(const PriceSetting& setting,
                                                   const RunConfig& run) {
  const ParallelConfig& layout = run.layout;
  const bool pipeline = layout.pp > 1;
  const int64_t micro_batches = run.num_micro_batches();
  const PipelineShape shape = {
      layout.pp, layout.vp,
      ShownMicroBatches(layout.schedule, {layout.pp, layout.vp, micro_batches})};
  const std::vector<StageProgram>& programs = programs_.Of(layout.schedule, shape);
  const MessageRecording messages = pipeline ? chunks_.Messages(setting, run) : MessageRecording{};
  std::vector<StagePlan> plans;
  RunConfig own = run;
  for (int64_t pp_rank = 0; pp_rank < layout.pp; ++pp_rank) {
    own.layout.recompute = layout.recompute[pp_rank];
    const StageProgram& program = programs[static_cast<size_t>(pp_rank)];
    const std::vector<const WayCosts*> chunks = ChunksOfStage(setting, run, pp_rank);
    int64_t id_bytes = 0;
    int64_t number = 0;
    for (const ModelChunk& chunk : ChunksOf(run, pp_rank)) {
      const int64_t in_flight = MicroBatchesInFlight(program, number++);
      id_bytes += chunks_.IdBytes(setting, own, chunk, in_flight);
    }
    plans.push_back(PlanStage(program, chunks, messages, shape.micro_batches, id_bytes));
    for (MessageCount& each : plans.back().messages) {
      each.count = each.count / shape.micro_batches * micro_batches;
      each.bytes = each.bytes / shape.micro_batches * micro_batches;
    }
  }
  return plans;
}

std::vector<StageCosts> StepCosts::Impl::PriceStages(const PriceSetting& setting,
                                                     const RunConfig& run,
                                                     const std::vector<StagePlan>& plans) {
  const ParallelConfig& layout = run.layout;
  const int64_t micro_batches = run.num_micro_batches();
  const double message_s =
      layout.pp > 1 ? LongerMessage(chunks_.Messages(setting, run), setting.pricer, layout) : 0;
  std::vector<StageCosts> stages;
  for (int64_t pp_rank = 0; pp_rank < layout.pp; ++pp_rank) {
    const StagePlan& plan = plans[static_cast<size_t>(pp_rank)];
    const std::vector<const WayCosts*> chunks = ChunksOfStage(setting, run, pp_rank);
    StageCosts& stage = stages.emplace_back();
    for (const WayCosts* each : chunks) {
      const WayCosts& ways = *each;
      std::array<Backlog, kWayCount> backlogs;
      for (size_t way = 0; way < kWayCount; ++way) {
        backlogs[way] = BacklogOf(ways[way]);
        const int64_t times = IsFirst(way) ? 1 : micro_batches - 1;
        if (times == 0) continue;
        stage.passes.Append(ways[way], times);
        stage.passes.message_s[backlogs[way].group] +=
            static_cast<double>(times) * backlogs[way].seconds;
      }
      const auto seconds = [&](Way way) { return ways[way].seconds() + backlogs[way].seconds; };
      stage.times.forward += seconds(kForwardLater);
      stage.times.backward_input += seconds(kBackwardAdding) + seconds(kInputAdding);
      stage.times.backward_weight += seconds(kWeightAdding);
    }
    stage.messages = plan.messages;
    stage.message_s = message_s;
    stage.first_passes_s = SecondsOf(plan.first_passes, chunks);
    stage.last_passes_s = SecondsOf(plan.last_passes, chunks);
    stage.id_bytes = plan.held;
    stage.total_peak = plan.total_peak;
    stage.activations_peak = plan.activations_peak;
  }
  return stages;
}

const std::vector<StageCosts>& StepCosts::Impl::StagesOf(const PriceSetting& setting,
                                                         const RunConfig& run) {
  if (stages_.size() > kMostPipelines) stages_.clear();
  const auto [found, is_new] = stages_.try_emplace(PipelineKey(setting, run));
  Stages& stages = found->second;
  if (is_new) stages.plans = PlanStages(setting, run);
  if (is_new || stages.prices != prices_) {
    stages.costs = PriceStages(setting, run, stages.plans);
    stages.prices = prices_;
    if (!keeps()) stages.plans.clear();
  }
  return stages.costs;
}

StepView StepCosts::Impl::Of(const RunConfig& run) {
  TRIMTAB_ASSERT(run.sequence_length == sequence_ && run.model.num_layers == model_.num_layers &&
                     run.model.hidden_size == model_.hidden_size,
                 "these are the costs of {} at sequence length {}", model_.name, sequence_);
  last_setting_ = &chunks_.SettingOf(run, last_setting_);
  const PriceSetting& setting = *last_setting_;
  const std::vector<StageCosts>& stages = StagesOf(setting, run);
  return {.stages = stages, .ends = ends_.Of(setting, run), .pricer = setting.pricer};
}

StepCosts::StepCosts(const ModelConfig& model, int64_t sequence_length, ChunkCosts& chunks,
                     StepEnds& ends)
    : impl_(std::make_unique<Impl>(model, sequence_length, chunks, ends)) {}
StepCosts::~StepCosts() = default;
StepCosts::StepCosts(StepCosts&&) noexcept = default;

StepView StepCosts::Of(const RunConfig& run) { return impl_->Of(run); }
void StepCosts::PricesChanged() { impl_->PricesChanged(); }

}  // namespace trimtab
