#include "cost_model/dry_run.h"

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "cost_model/finish.h"
#include "cost_model/price.h"
#include "cost_model/timeline.h"
#include "engine/base/error.h"
#include "engine/base/units.h"
#include "engine/config/rules.h"
#include "engine/schedule/pipeline.h"
#include "engine/train/trainer.h"

namespace trimtab {
namespace {

std::string Describe(const OpRecord& op) {
  std::string text(Name(op.kind));
  const char* separator = " ";
  for (const int64_t dim : op.dims) {
    if (dim == 0) break;
    text += fmt::format("{}{}", separator, dim);
    separator = "x";
  }
  return text;
}

/// Prices every op and message of a rank, one after the other as the engine issues them.
class PricingRecorder final : public Recorder {
 public:
  PricingRecorder(const Pricer& pricer, const ParallelConfig& layout, size_t actions,
                  bool with_timeline)
      : pricer_(pricer), layout_(layout), with_timeline_(with_timeline) {
    seconds.actions.resize(actions);
    events.resize(actions + 1);
  }

  void EnterAction(int64_t index) override { action_ = static_cast<size_t>(index); }
  void EnterPiece(const PieceRecord& piece) override {
    piece_ = piece;
    if (piece.kind == PieceKind::kUpdate) action_ = seconds.actions.size();
  }

  void BeginOp(const OpRecord& op) override {
    const double op_s = pricer_.Seconds(op);
    Breakdown& parts = estimate.breakdown_s;
    double& part = piece_.kind == PieceKind::kUpdate ? parts.optimizer : parts.compute;
    (recomputes() ? parts.recompute : part) += op_s;
    estimate.hardware_flops += op.flops;
    ++estimate.op_count;
    if (with_timeline_) events[action_].push_back({Describe(op), "compute", now(), op_s});
    now() += op_s;
  }

  void BeginComm(const CommRecord& message) override {
    const double message_s = pricer_.Seconds(message, StrideOf(message.group, layout_));
    CommTotal& total = estimate.comm.at(message.kind, message.group);
    ++total.count;
    total.bytes += message.bytes;
    if (with_timeline_) {
      const std::string group(Name(message.group));
      events[action_].push_back(
          {fmt::format("{} {} {}", Name(message.kind), group, FormatBytes(message.bytes)), group,
           now(), message_s});
    }
    now() += message_s;
    // Between stages it runs beside the passes: what shows of it, the pipeline's timeline says.
    const bool beside =
        message.kind == CollectiveKind::kSend || message.kind == CollectiveKind::kRecv;
    if (beside) return;
    Breakdown& parts = estimate.breakdown_s;
    (recomputes() ? parts.recompute : parts.exposed(message.group)) += message_s;
  }

  // Other messages are priced one after the other, as if each were waited for at once.
  void BeginWait(const CommRecord&) override {}
  void End() override {}

  Estimate estimate;
  StageSeconds seconds;
  std::vector<std::vector<TimelineEvent>> events;  // by action, from its start; the end's come last

 private:
  bool recomputes() const { return piece_.pass == PassKind::kRecompute; }
  /// Seconds of the action so far.
  double& now() {
    return action_ < seconds.actions.size() ? seconds.actions[action_] : seconds.end;
  }

  const Pricer& pricer_;
  const ParallelConfig& layout_;
  bool with_timeline_;
  PieceRecord piece_;
  size_t action_ = 0;
};

/// What the dry step of one rank of a stage says.
struct StageResult {
  Estimate estimate;
  StageSeconds seconds;
  BytesByTag peak_by_tag{};
  BytesByTag by_tag_at_peak{};
  std::vector<std::vector<TimelineEvent>> events;
};

StageResult DryStage(const RunConfig& run, const Pricer& pricer, int64_t stage, size_t actions,
                     const Executor& executor, bool with_timeline) {
  const std::unique_ptr<Device> device = MakeMetaDevice(executor.threads, executor.kind);
  const ParallelContext context =
      MakeMetaContext(run.layout, RankAt(run.layout, {.pp = static_cast<int>(stage)}));
  Trainer trainer(run, context, *device);
  const auto bytes = [&device](MemoryTag tag) {
    return device->memory().current_by_tag()[static_cast<size_t>(tag)];
  };
  StageResult result;
  MemoryEstimate memory = {.weights = bytes(MemoryTag::kWeights),
                           .gradients = bytes(MemoryTag::kGradients),
                           .optimizer = bytes(MemoryTag::kOptimizer)};
  device->memory().ResetPeaks();
  PricingRecorder recorder(pricer, run.layout, actions, with_timeline);
  device->set_recorder(&recorder);
  trainer.Step(*MakeSyntheticSource(run.model.vocab_size, run.seed), 0);
  device->set_recorder(nullptr);

  result.peak_by_tag = device->memory().peak_by_tag();
  result.by_tag_at_peak = device->memory().by_tag_at_peak();
  memory.activations = result.peak_by_tag[static_cast<size_t>(MemoryTag::kActivations)];
  memory.peak_total = device->memory().peak_total();
  result.estimate = recorder.estimate;
  result.estimate.memory = memory;
  result.seconds = std::move(recorder.seconds);
  result.events = std::move(recorder.events);
  return result;
}

/// The events of a stage at the times at which its actions run.
std::vector<TimelineEvent> Place(StageResult& stage, const std::vector<TimelineSlice>& slices,
                                 double end_s, int64_t number) {
  std::vector<TimelineEvent> placed;
  for (size_t i = 0; i < stage.events.size(); ++i) {
    const double begin_s = i < slices.size() ? slices[i].start_s : end_s - stage.seconds.end;
    for (TimelineEvent& event : stage.events[i]) {
      event.stage = number;
      event.start_s += begin_s;
      placed.push_back(std::move(event));
    }
  }
  return placed;
}

}  // namespace

DryRunResult DryRunStep(const RunConfig& run, const Cluster& cluster, bool with_timeline) {
  RequireLegal(run);
  const ParallelConfig& layout = run.layout;
  const Mode mode = ModeOf(run, cluster);
  const Pricer pricer(cluster.profile, mode, cluster.ranks_per_node, cluster.cores,
                      layout.precision);
  const std::vector<StageProgram> programs =
      PlanPipeline(layout.schedule, {layout.pp, layout.vp, run.num_micro_batches()});

  DryRunResult result;
  std::vector<StageResult> stages;
  std::vector<StageSeconds> seconds;
  size_t fullest = 0;
  for (size_t i = 0; i < programs.size(); ++i) {
    stages.push_back(DryStage(run, pricer, static_cast<int64_t>(i), programs[i].size(),
                              ExecutorOf(mode, cluster), with_timeline));
    seconds.push_back(stages.back().seconds);
    const auto peak = [&stages](size_t stage) { return stages[stage].estimate.memory.peak_total; };
    if (peak(i) > peak(fullest)) fullest = i;
  }
  const PipelineTimeline timeline = RunPipeline(programs, seconds);
  const size_t slowest = timeline.slowest();
  if (with_timeline) {
    for (size_t i = 0; i < stages.size(); ++i) {
      for (TimelineEvent& event : Place(stages[i], timeline.slices[i], timeline.stages[i].end_s,
                                        static_cast<int64_t>(i))) {
        result.timeline.push_back(std::move(event));
      }
    }
  }
  result.estimate = stages[slowest].estimate;
  result.estimate.breakdown_s.bubble = timeline.stages[slowest].bubble_s;
  result.estimate.breakdown_s.exposed_pp += timeline.stages[slowest].exposed_s;
  result.estimate.memory = stages[fullest].estimate.memory;
  result.peak_by_tag = stages[fullest].peak_by_tag;
  result.by_tag_at_peak = stages[fullest].by_tag_at_peak;
  FinishEstimate(run, cluster, pricer, result.estimate);
  return result;
}

Estimate DryRunStage(const RunConfig& run, const Cluster& cluster, int64_t stage) {
  RequireLegal(run);
  const Mode mode = ModeOf(run, cluster);
  const Pricer pricer(cluster.profile, mode, cluster.ranks_per_node, cluster.cores,
                      run.layout.precision);
  const size_t actions = ProgramOf(run, stage).size();
  return DryStage(run, pricer, stage, actions, ExecutorOf(mode, cluster), false).estimate;
}

Estimate DryRun(const RunConfig& run, const Cluster& cluster) {
  return DryRunStep(run, cluster, false).estimate;
}

void WriteChromeTrace(const std::vector<TimelineEvent>& timeline, const std::string& path) {
  nlohmann::json events = nlohmann::json::array();
  // The format numbers processes (here: stages) and threads (streams), and names them apart.
  std::map<std::pair<int64_t, std::string>, int64_t> streams;
  const auto name = [&events](const char* what, int64_t stage, int64_t stream,
                              const std::string& text) {
    events.push_back(
        {{"name", what}, {"ph", "M"}, {"pid", stage}, {"tid", stream}, {"args", {{"name", text}}}});
  };
  for (const TimelineEvent& event : timeline) {
    const auto [found, added] =
        streams.try_emplace({event.stage, event.stream}, static_cast<int64_t>(streams.size()));
    if (added) {
      name("process_name", event.stage, 0, fmt::format("stage {}", event.stage));
      name("thread_name", event.stage, found->second, event.stream);
    }
    events.push_back({{"name", event.name},
                      {"ph", "X"},
                      {"pid", event.stage},
                      {"tid", found->second},
                      {"ts", event.start_s * 1e6},
                      {"dur", event.duration_s * 1e6}});
  }
  std::ofstream file(path);
  file << nlohmann::json{{"traceEvents", events}, {"displayTimeUnit", "ms"}}.dump() << '\n';
  file.flush();
  if (!file) throw StorageError(fmt::format("{}: cannot write the trace", path));
}

}  // namespace trimtab
