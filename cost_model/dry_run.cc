#include "cost_model/dry_run.h"

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "cost_model/finish.h"
#include "cost_model/overlap.h"
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

/// "layer 3 forward", "head backward", "update".
std::string Describe(const PieceRecord& piece) {
  if (piece.kind == PieceKind::kUpdate) return std::string(Name(piece.kind));
  const std::string number = piece.kind == PieceKind::kLayer ? fmt::format(" {}", piece.layer) : "";
  return fmt::format("{}{} {}", Name(piece.kind), number, Name(piece.pass));
}

/// "forward of micro batch 3", and of which chunk where a stage has several.
std::string Describe(const Action& action, int64_t chunks) {
  const std::string chunk = chunks > 1 ? fmt::format(", chunk {}", action.chunk) : "";
  return fmt::format("{} of micro batch {}{}", Name(action.kind), action.micro_batch, chunk);
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

  void EnterAction(int64_t index) override {
    ClosePiece();
    action_ = static_cast<size_t>(index);
  }
  void EnterPiece(const PieceRecord& piece) override {
    ClosePiece();
    piece_ = piece;
    if (piece.kind == PieceKind::kUpdate) action_ = seconds.actions.size();
    if (!with_timeline_) return;
    piece_event_ = events[action_].size();
    events[action_].push_back({Describe(piece), "compute", now(), 0});
    open_ = true;
  }
  /// Call at the end of the step.
  void ClosePiece() {
    if (!open_) return;
    TimelineEvent& event = events[action_][piece_event_];
    event.duration_s = now() - event.start_s;
    open_ = false;
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
    clock_.Pass(op_s);
  }

  void BeginComm(const CommRecord& message) override {
    const double message_s = pricer_.Seconds(message, StrideOf(message.group, layout_));
    // Between stages it runs beside the passes: what shows of it, the pipeline's timeline says.
    const bool beside = message.group == GroupKind::kPipeline && message.asynchronous();
    // Within a pass it runs beside the ops: what shows of it, the wait for it says.
    const bool within = WaitedForWithinPiece(message);
    // Other asynchronous messages hold up no pass. They are priced as if nothing hid them, at the
    // end, where they are waited for.
    const size_t action = action_;
    if (message.asynchronous() && !beside && !within) action_ = seconds.actions.size();
    const double delay_s = within ? clock_.Submit(message, message_s) : 0;
    CommTotal& total = estimate.comm.at(message.kind, message.group);
    ++total.count;
    total.bytes += message.bytes;
    if (with_timeline_) {
      const std::string group(Name(message.group));
      events[action_].push_back(
          {fmt::format("{} {} {}", Name(message.kind), group, FormatBytes(message.bytes)), group,
           now() + delay_s, message_s});
    }
    if (within) return;
    now() += message_s;
    action_ = action;
    if (beside) return;
    if (!message.asynchronous()) clock_.Pass(message_s);
    PartOf(message) += message_s;
  }

  void BeginWait(const CommRecord& message) override {
    if (!WaitedForWithinPiece(message)) return;
    const double wait_s = clock_.Wait(message);
    now() += wait_s;
    PartOf(message) += wait_s;
  }
  void End() override {}

  Estimate estimate;
  StageSeconds seconds;
  std::vector<std::vector<TimelineEvent>> events;  // by action, from its start; the end's come last

 private:
  bool recomputes() const { return piece_.pass == PassKind::kRecompute; }
  double& PartOf(const CommRecord& message) {
    Breakdown& parts = estimate.breakdown_s;
    return recomputes() ? parts.recompute : parts.exposed(message.group);
  }
  /// Seconds of the action so far.
  double& now() {
    return action_ < seconds.actions.size() ? seconds.actions[action_] : seconds.end;
  }

  const Pricer& pricer_;
  const ParallelConfig& layout_;
  bool with_timeline_;
  PieceRecord piece_;
  OverlapClock clock_;
  size_t action_ = 0;
  bool open_ = false;  // the piece at events[action_][piece_event_] has no end yet
  size_t piece_event_ = 0;
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
  recorder.ClosePiece();

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

/// Appends the events of stage `number` at the times at which its actions run, each pass around its
/// own.
void Place(StageResult& stage, const StageProgram& program, int64_t chunks,
           const PipelineTimeline& timeline, size_t number, std::vector<TimelineEvent>& placed) {
  for (size_t i = 0; i < stage.events.size(); ++i) {
    const bool end = i == program.size();
    const double begin_s = end ? timeline.stages[number].end_s - stage.seconds.end
                               : timeline.slices[number][i].start_s;
    if (!end && IsCompute(program[i].kind)) {
      placed.push_back({Describe(program[i], chunks), "compute", begin_s, stage.seconds.actions[i],
                        static_cast<int64_t>(number)});
    }
    for (TimelineEvent& event : stage.events[i]) {
      event.stage = static_cast<int64_t>(number);
      event.start_s += begin_s;
      placed.push_back(std::move(event));
    }
  }
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
      Place(stages[i], programs[i], layout.vp, timeline, i, result.timeline);
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
