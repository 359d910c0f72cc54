// Prints what the timeline of a large pipeline takes on one core: DeepSeek-V3 on 2,048 GPUs, 16
// stages and experts over 64 ranks (DeepSeek-AI, arXiv:2412.19437, section 3.2), with the times
// that the recordings of its stages give.
//
//   bazel run -c opt //tests/cost_model/dry_run:timeline_benchmark
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <vector>

#include "cost_model/closed_form/stage_costs.h"
#include "cost_model/dry_run/timeline.h"
#include "engine/config/rules/rules.h"
#include "engine/families/load_config.h"
#include "engine/schedule/pipeline.h"

namespace trimtab {
namespace {

constexpr int kRounds = 51;

RunConfig DeepSeekV3(const Cluster& cluster) {
  RunConfig run;
  run.model = LoadModelConfig("deepseek-v3");
  run.device = cluster.device;
  run.sequence_length = 4096;
  run.global_batch = 15360;
  run.layout = ParseLayout(
      "pp=16,dp=128,ep=64,zero=1,mbs=1,precision=bf16,recompute=selective:core_attn+mlp", 0);
  RequireLegal(run);
  return run;
}

/// Of every action of a stage.
StageSeconds SecondsOf(const StageProgram& program, const StageCosts& stage, double end_s) {
  StageSeconds seconds;
  seconds.end = end_s;
  const StageTimes& times = stage.times;
  for (const Action& action : program) {
    switch (action.kind) {
      case ActionKind::kForward:
        seconds.actions.push_back(times.forward);
        break;
      case ActionKind::kBackward:
        seconds.actions.push_back(times.backward_input + times.backward_weight);
        break;
      case ActionKind::kBackwardInput:
        seconds.actions.push_back(times.backward_input);
        break;
      case ActionKind::kBackwardWeight:
        seconds.actions.push_back(times.backward_weight);
        break;
      default:
        seconds.actions.push_back(stage.message_s);
    }
  }
  return seconds;
}

/// Of kRounds calls, in milliseconds.
double MedianMs(const std::function<void()>& work) {
  std::vector<double> milliseconds;
  for (int round = 0; round < kRounds; ++round) {
    const auto begin = std::chrono::steady_clock::now();
    work();
    const std::chrono::duration<double, std::milli> taken =
        std::chrono::steady_clock::now() - begin;
    milliseconds.push_back(taken.count());
  }
  std::nth_element(milliseconds.begin(), milliseconds.begin() + kRounds / 2, milliseconds.end());
  return milliseconds[kRounds / 2];
}

int Run() {
  const Cluster cluster = LoadCluster("256x8xh800");
  const RunConfig run = DeepSeekV3(cluster);
  const PipelineShape shape = {run.layout.pp, run.layout.vp, run.num_micro_batches()};
  ChunkCosts chunks(cluster, Remembered::kCosts);
  StepEnds ends(/*keeps=*/false);
  StepCosts costs(run.model, run.sequence_length, chunks, ends);
  const StepView step = costs.Of(run);
  const auto timeline = [&] {
    const std::vector<StageProgram> programs = PlanPipeline(run.layout.schedule, shape);
    std::vector<StageSeconds> seconds;
    for (size_t i = 0; i < programs.size(); ++i) {
      const PieceCost& update = step.ends[i].update;
      seconds.push_back(SecondsOf(programs[i], step.stages[i], update.seconds()));
    }
    return RunPipeline(programs, seconds);
  };
  const PipelineTimeline result = timeline();
  const StageTimeline& slowest = result.stages[result.slowest()];
  fmt::print(
      "{} on {} GPUs, {} stages, {} micro batches: timeline in {:.2f} ms (median of {}); the "
      "slowest "
      "stage computes {:.2f} s and waits {:.2f} s\n",
      run.model.name, run.layout.world_size(), shape.pp, shape.micro_batches, MedianMs(timeline),
      kRounds, slowest.compute_s, slowest.bubble_s + slowest.exposed_s);
  return 0;
}

}  // namespace
}  // namespace trimtab

int main() { return trimtab::Run(); }
