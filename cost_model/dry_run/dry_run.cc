#include "cost_model/dry_run/dry_run.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "cost_model/dry_run/pricing_recorder.h"
#include "cost_model/dry_run/timeline.h"
#include "cost_model/finish.h"
#include "cost_model/prices/price.h"
#include "cost_model/recordings/recording.h"
#include "cost_model/shared_cores.h"
#include "engine/base/error.h"
#include "engine/base/io/file.h"
#include "engine/base/units.h"
#include "engine/config/rules/rules.h"
#include "engine/runtime/chunks.h"
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
  std::vector<Estimate> estimates;  // by kind of action; what comes after the last action last
  MemoryEstimate memory;
  StageSeconds seconds;
  BytesByTag peak_by_tag{};
  BytesByTag by_tag_at_peak{};
  std::vector<std::vector<TimelineEvent>> events;
};

/// `kinds`: see PricingRecorder.
StageResult DryStage(const RunConfig& run, const Pricer& pricer, int64_t stage,
                     const std::vector<size_t>& kinds, const Executor& executor,
                     bool with_timeline) {
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
  PricingRecorder recorder(pricer, run.layout, kinds, with_timeline);
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
  result.estimates = recorder.estimates();
  result.memory = memory;
  result.seconds = recorder.seconds();
  result.events = recorder.events();
  return result;
}

/// Adds what `count` alike did, as `times` of them would.
void Add(const Estimate& part, int64_t count, int64_t times, Estimate& sum) {
  const double share = static_cast<double>(times) / static_cast<double>(count);
  for (const BreakdownPart& each : kBreakdownParts) {
    sum.breakdown_s.*each.seconds += share * (part.breakdown_s.*each.seconds);
  }
  sum.hardware_flops += part.hardware_flops / count * times;
  sum.op_count += part.op_count / count * times;
  for (size_t kind = 0; kind < part.comm.totals.size(); ++kind) {
    for (size_t group = 0; group < part.comm.totals[kind].size(); ++group) {
      const CommTotal& messages = part.comm.totals[kind][group];
      sum.comm.totals[kind][group].count += messages.count / count * times;
      sum.comm.totals[kind][group].bytes += messages.bytes / count * times;
    }
  }
}

/// Of a whole step.
Estimate EstimateOf(const StageResult& stage) {
  Estimate estimate;
  for (const Estimate& part : stage.estimates) Add(part, 1, 1, estimate);
  estimate.memory = stage.memory;
  return estimate;
}

/// What passes are told apart by that take different times, and messages with them: which chunk of
/// the stage they are of, and whether the micro batch is the first or the last of the step.
std::vector<size_t> KindsOf(const StageProgram& program, int64_t micro_batches, int64_t chunks) {
  enum : size_t { kFirst, kLast, kAmid, kParts };
  std::vector<size_t> kinds;
  for (const Action& action : program) {
    const size_t part = action.micro_batch == 0                   ? kFirst
                        : action.micro_batch + 1 == micro_batches ? kLast
                                                                  : kAmid;
    const auto pass = static_cast<size_t>(action.kind) * static_cast<size_t>(chunks) +
                      static_cast<size_t>(action.chunk);
    kinds.push_back(pass * kParts + part);
  }
  return kinds;
}

/// Micro batches of which there is every kind.
int64_t MicroBatchesOfEveryKind(const RunConfig& run) {
  constexpr int64_t kFirstAmidAndLast = 3;
  const ParallelConfig& layout = run.layout;
  // Interleaved, whole rounds of as many as there are stages.
  const int64_t few = layout.vp > 1 ? RoundUp(kFirstAmidAndLast, layout.pp) : kFirstAmidAndLast;
  return std::min(few, run.num_micro_batches());
}

/// What a stage of the step with the actions `kinds` does, of which `shown` has every kind.
StageResult Drawn(const StageResult& shown, const std::vector<size_t>& shown_kinds,
                  const std::vector<size_t>& kinds) {
  std::vector<int64_t> shown_times(shown.estimates.size());
  std::vector<double> seconds(shown.estimates.size());
  std::vector<double> not_before(shown.estimates.size());
  for (size_t i = 0; i < shown_kinds.size(); ++i) {
    ++shown_times[shown_kinds[i]];
    seconds[shown_kinds[i]] = shown.seconds.actions[i];
    not_before[shown_kinds[i]] = shown.seconds.not_before[i];
  }
  std::vector<int64_t> times(shown.estimates.size());
  StageResult stage;
  for (const size_t kind : kinds) {
    ++times[kind];
    stage.seconds.actions.push_back(seconds[kind]);
    stage.seconds.not_before.push_back(not_before[kind]);
  }
  stage.seconds.end = shown.seconds.end;
  Estimate& sum = stage.estimates.emplace_back();
  for (size_t kind = 0; kind < times.size(); ++kind) {
    if (shown_times[kind] > 0) Add(shown.estimates[kind], shown_times[kind], times[kind], sum);
  }
  Add(shown.estimates.back(), 1, 1, sum);
  return stage;
}

/// What a stage waits for weights that are under way when it never waits for its neighbours.
double WeightWaitsAlone(const StageProgram& program, const StageSeconds& seconds) {
  double now_s = 0;
  double waits_s = 0;
  for (size_t i = 0; i < program.size(); ++i) {
    if (!IsCompute(program[i].kind)) continue;
    const double wait_s = std::max(0.0, seconds.not_before[i] - now_s);
    waits_s += wait_s;
    now_s += wait_s + seconds.actions[i];
  }
  return waits_s;
}

/// The row of the timeline for the messages of an action.
std::string WayOf(const std::string& stream, const Action& message) {
  return fmt::format("{} {} stage {}", stream, IsSend(message.kind) ? "to" : "from", message.peer);
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
      if (!end && !IsCompute(program[i].kind)) event.stream = WayOf(event.stream, program[i]);
      placed.push_back(std::move(event));
    }
  }
  const auto place_waits = [&](const char* what, const std::vector<TimeSpan>& waits) {
    for (const TimeSpan& wait : waits) {
      placed.push_back(
          {what, "compute", wait.start_s, wait.seconds(), static_cast<int64_t>(number)});
    }
  };
  place_waits("wait for a neighbour", timeline.waits[number]);
  place_waits("wait for weights", timeline.weight_waits[number]);
}

/// What a stage does, if every micro batch takes the same.
StageWork WorkOf(const StageResult& stage, const StageProgram& program, int64_t micro_batches) {
  StageWork work = {{0, 0, 0}, stage.seconds.end};
  for (size_t i = 0; i < program.size(); ++i) {
    const ActionKind kind = program[i].kind;
    if (!IsCompute(kind)) continue;
    double& seconds = kind == ActionKind::kForward          ? work.times.forward
                      : kind == ActionKind::kBackwardWeight ? work.times.backward_weight
                                                            : work.times.backward_input;
    seconds += stage.seconds.actions[i] / static_cast<double>(micro_batches);
  }
  return work;
}

/// The stages of a step against each other: of the busiest, but for its memory. What others are
/// still at when it is done is a bubble, as what it waits for them before.
Estimate TimelineEstimate(const RunConfig& run, const Cluster& cluster,
                          const std::vector<StageProgram>& programs,
                          const std::vector<StageResult>& stages,
                          const PipelineTimeline& timeline) {
  const PipelineShape shape = {run.layout.pp, run.layout.vp, run.num_micro_batches()};
  std::vector<StageWork> work;
  std::vector<double> busy_s;
  for (size_t i = 0; i < stages.size(); ++i) {
    work.push_back(WorkOf(stages[i], programs[i], shape.micro_batches));
    busy_s.push_back(timeline.stages[i].compute_s + work.back().end_s);
  }
  const auto busiest =
      static_cast<size_t>(std::max_element(busy_s.begin(), busy_s.end()) - busy_s.begin());
  const StageTimeline& own = timeline.stages[busiest];
  Estimate estimate = EstimateOf(stages[busiest]);
  const double crowding = Crowding(run, cluster);
  if (crowding == 1 || run.layout.pp == 1) {
    const double others_s = timeline.stages[timeline.slowest()].end_s - own.end_s;
    estimate.breakdown_s.bubble = own.bubble_s + others_s;
    estimate.breakdown_s.exposed_dp += own.weights_s;
  } else {
    FillTo(SecondsOnSharedCores(run.layout.schedule, shape, work, crowding), estimate.breakdown_s);
  }
  estimate.breakdown_s.exposed_pp += own.exposed_s;
  return estimate;
}

PipelineTimeline RunStages(const std::vector<StageProgram>& programs,
                           const std::vector<StageResult>& stages) {
  std::vector<StageSeconds> seconds;
  for (const StageResult& stage : stages) seconds.push_back(stage.seconds);
  return RunPipeline(programs, seconds);
}

std::vector<StageProgram> ProgramsOf(const RunConfig& run) {
  return PlanPipeline(run.layout.schedule, {run.layout.pp, run.layout.vp, run.num_micro_batches()});
}

}  // namespace

DryRunResult DryRunStep(const RunConfig& run, const Cluster& cluster, bool with_timeline) {
  RequireLegal(run);
  const Mode mode = ModeOf(run, cluster);
  const Pricer pricer = PricerOf(cluster, mode, run.layout.numerics.precision, run.model.moe);
  const std::vector<StageProgram> programs = ProgramsOf(run);

  DryRunResult result;
  std::vector<StageResult> stages;
  size_t fullest = 0;
  for (size_t i = 0; i < programs.size(); ++i) {
    stages.push_back(DryStage(run, pricer, static_cast<int64_t>(i),
                              std::vector<size_t>(programs[i].size()), ExecutorOf(mode, cluster),
                              with_timeline));
    if (stages[i].memory.peak_total > stages[fullest].memory.peak_total) fullest = i;
  }
  const PipelineTimeline timeline = RunStages(programs, stages);
  result.estimate = TimelineEstimate(run, cluster, programs, stages, timeline);
  if (with_timeline) {
    for (size_t i = 0; i < stages.size(); ++i) {
      Place(stages[i], programs[i], run.layout.vp, timeline, i, result.timeline);
    }
  }
  result.estimate.memory = stages[fullest].memory;
  result.peak_by_tag = stages[fullest].peak_by_tag;
  result.by_tag_at_peak = stages[fullest].by_tag_at_peak;
  FinishEstimate(run, cluster, pricer, result.estimate);
  return result;
}

Estimate BriefDryRun(const RunConfig& run, const Cluster& cluster,
                     const std::vector<Estimate>& stages_held) {
  RequireLegal(run);
  const ParallelConfig& layout = run.layout;
  const Mode mode = ModeOf(run, cluster);
  const Pricer pricer = PricerOf(cluster, mode, run.layout.numerics.precision, run.model.moe);
  RunConfig shorter = run;
  shorter.global_batch = layout.micro_batch * layout.dp * MicroBatchesOfEveryKind(run);
  const std::vector<StageProgram> programs = ProgramsOf(run);
  const std::vector<StageProgram> short_programs = ProgramsOf(shorter);
  const std::vector<int64_t> first_alike = FirstAlike(run);
  // Stages with like chunks take as long.
  using Alike = std::pair<std::vector<ModelChunk>, RecomputeConfig>;
  std::vector<std::pair<Alike, size_t>> seen;
  std::vector<StageResult> shown;
  std::vector<std::vector<size_t>> shown_kinds;
  std::vector<StageResult> stages;
  for (size_t i = 0; i < programs.size(); ++i) {
    const auto stage = static_cast<int64_t>(i);
    Alike alike = {ChunksOf(run, stage), layout.recompute[stage]};
    for (ModelChunk& chunk : alike.first) chunk.first_layer = FirstLayersAlike(first_alike, chunk);
    auto like = std::find_if(seen.begin(), seen.end(),
                             [&](const auto& each) { return each.first == alike; });
    if (like == seen.end()) {
      shown_kinds.push_back(KindsOf(short_programs[i], shorter.num_micro_batches(), layout.vp));
      shown.push_back(DryStage(shorter, pricer, stage, shown_kinds.back(),
                               ExecutorOf(mode, cluster), /*with_timeline=*/false));
      like = seen.insert(seen.end(), {std::move(alike), shown.size() - 1});
    }
    stages.push_back(Drawn(shown[like->second], shown_kinds[like->second],
                           KindsOf(programs[i], run.num_micro_batches(), layout.vp)));
  }
  Estimate estimate = TimelineEstimate(run, cluster, programs, stages, RunStages(programs, stages));
  estimate.memory = std::max_element(stages_held.begin(), stages_held.end(),
                                     [](const Estimate& a, const Estimate& b) {
                                       return a.memory.peak_total < b.memory.peak_total;
                                     })
                        ->memory;
  FinishEstimate(run, cluster, pricer, estimate);
  return estimate;
}

Estimate DryRunStage(const RunConfig& run, const Cluster& cluster, int64_t stage) {
  RequireLegal(run);
  const Mode mode = ModeOf(run, cluster);
  const StageProgram program = ProgramOf(run, stage);
  const std::vector<size_t> kinds(program.size());
  const StageResult result =
      DryStage(run, PricerOf(cluster, mode, run.layout.numerics.precision, run.model.moe), stage,
               kinds, ExecutorOf(mode, cluster), /*with_timeline=*/false);
  Estimate estimate = EstimateOf(result);
  estimate.breakdown_s.exposed_dp += WeightWaitsAlone(program, result.seconds);
  return estimate;
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
  AtomicFile file(path);
  file.Append(nlohmann::json{{"traceEvents", events}, {"displayTimeUnit", "ms"}}.dump() + "\n");
  file.Commit();
}

}  // namespace trimtab
