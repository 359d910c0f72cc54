#include "cost_model/dry_run.h"

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "cost_model/finish.h"
#include "cost_model/idle_share.h"
#include "cost_model/price.h"
#include "cost_model/pricing_recorder.h"
#include "cost_model/timeline.h"
#include "engine/base/error.h"
#include "engine/config/rules.h"
#include "engine/schedule/pipeline.h"
#include "engine/train/trainer.h"

namespace trimtab {
namespace {

/// "forward of micro batch 3", and of which chunk where a stage has several.
std::string Describe(const Action& action, int64_t chunks) {
  const std::string chunk = chunks > 1 ? fmt::format(", chunk {}", action.chunk) : "";
  return fmt::format("{} of micro batch {}{}", Name(action.kind), action.micro_batch, chunk);
}

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
      MakeMetaContext(run.layout, RankAt(run.layout, {.pp = static_cast<int>(stage)}),
                      run.model.kv_copies(run.layout.tp));
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
  const auto source = MakeSyntheticSource(run.model.vocab_size, run.seed);
  trainer.Step(*source, 0);
  if (run.layout.overlap_param_gather) {
    // A step like any other finds weights on their way.
    recorder.BeginNextStep();
    trainer.Step(*source, 1);
  }
  device->set_recorder(nullptr);
  recorder.Close();

  result.peak_by_tag = device->memory().peak_by_tag();
  result.by_tag_at_peak = device->memory().by_tag_at_peak();
  memory.activations = result.peak_by_tag[static_cast<size_t>(MemoryTag::kActivations)];
  memory.peak_total = device->memory().peak_total();
  result.estimate = recorder.estimate();
  result.estimate.memory = memory;
  result.seconds = recorder.seconds();
  result.events = recorder.events();
  return result;
}

/// Appends the events of stage `number` at the times at which its actions run, each pass around its
/// own, and its waits for other stages.
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
  for (const TimeSpan& wait : timeline.waits[number]) {
    placed.push_back({"wait for a neighbour", "compute", wait.start_s, wait.seconds(),
                      static_cast<int64_t>(number)});
  }
}

}  // namespace

DryRunResult DryRunStep(const RunConfig& run, const Cluster& cluster, bool with_timeline) {
  RequireLegal(run);
  const ParallelConfig& layout = run.layout;
  const Mode mode = ModeOf(run, cluster);
  const Pricer pricer(cluster.profile, mode, cluster.ranks_per_node, cluster.cores,
                      layout.precision, cluster.stack, run.model.moe);
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
  result.estimate.breakdown_s.bubble = IdleShare(run, cluster) * timeline.stages[slowest].bubble_s;
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
                      run.layout.precision, cluster.stack, run.model.moe);
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
