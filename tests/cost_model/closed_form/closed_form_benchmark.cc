// Prints what a recording takes, and how many candidates a second the closed form estimates on one
// core.
//
//   bazel run //tests/cost_model/closed_form:closed_form_benchmark
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <vector>

#include "cost_model/closed_form/closed_form.h"
#include "cost_model/recordings/recording.h"
#include "engine/config/rules/rules.h"
#include "engine/families/load_config.h"
#include "engine/runtime/chunks.h"

namespace trimtab {
namespace {

constexpr int kRounds = 20;

std::vector<RunConfig> Candidates(const ModelConfig& model, const Cluster& cluster) {
  std::vector<RunConfig> runs;
  RunConfig run;
  run.model = model;
  run.device = cluster.device;
  run.global_batch = 1536;
  run.sequence_length = 2048;
  for (run.layout.tp = 1; run.layout.tp <= 8; run.layout.tp *= 2) {
    for (run.layout.dp = 1; run.layout.tp * run.layout.dp <= cluster.max_ranks;
         run.layout.dp *= 2) {
      for (run.layout.micro_batch = 1; run.layout.micro_batch <= 16; run.layout.micro_batch *= 2) {
        for (const bool sequence_parallel : {false, true}) {
          run.layout.sequence_parallel = sequence_parallel;
          for (run.layout.zero = 0; run.layout.zero <= 1; ++run.layout.zero) {
            for (int64_t layers = 0; layers <= model.num_layers; layers += 4) {
              run.layout.recompute =
                  layers > 0 ? ParseRecompute(fmt::format("full:block:{}", layers), "plan")
                             : RecomputeConfig{};
              if (FirstBrokenRule(run) == nullptr) runs.push_back(run);
            }
          }
        }
      }
    }
  }
  return runs;
}

double SecondsOf(const std::function<void()>& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

/// The median over kRounds calls.
double TypicalSeconds(const std::function<void()>& work) {
  std::vector<double> seconds;
  for (int round = 0; round < kRounds; ++round) seconds.push_back(SecondsOf(work));
  std::nth_element(seconds.begin(), seconds.begin() + kRounds / 2, seconds.end());
  return seconds[kRounds / 2];
}

int Run() {
  const Cluster cluster = LoadCluster("128x8xh100");
  const ModelConfig model = LoadModelConfig("gpt3-175b");
  const std::vector<RunConfig> runs = Candidates(model, cluster);
  const Executor gpu = {DeviceKind::kCuda, 1};
  const RunConfig& run = runs.back();
  RunConfig in_stages = run;
  in_stages.layout.pp = 16;
  fmt::print(
      "recording a micro batch of one layer: {:.0f} us; the update of all {} layers: {:.0f} us, of "
      "one of {} stages: {:.0f} us\n",
      1e6 * TypicalSeconds([&] { RecordMicroBatch(run, {.num_layers = 1}, gpu); }),
      model.num_layers, 1e6 * TypicalSeconds([&] { RecordUpdate(run, 0, ProgramOf(run, 0), gpu); }),
      in_stages.layout.pp,
      1e6 * TypicalSeconds([&] { RecordUpdate(in_stages, 1, ProgramOf(in_stages, 1), gpu); }));

  double checksum = 0;
  const auto estimate_all = [&](ClosedFormEstimator& estimator) {
    for (const RunConfig& each : runs) checksum += estimator.Run(each).step_time_s;
  };
  // What is recorded within a search, once, and what every further candidate takes.
  const double cold_s = TypicalSeconds([&] {
    ClosedFormEstimator fresh(model, 2048, cluster);
    estimate_all(fresh);
  });
  ClosedFormEstimator estimator(model, 2048, cluster);
  estimate_all(estimator);
  const double warm_s = TypicalSeconds([&] { estimate_all(estimator); });
  const auto count = static_cast<double>(runs.size());
  fmt::print(
      "{} layouts on one core: {:.0f} candidates/s, recordings included; {:.0f} warm "
      "({:.2f} us each; checksum {:.3g})\n",
      runs.size(), count / cold_s, count / warm_s, 1e6 * warm_s / count, checksum);
  return 0;
}

}  // namespace
}  // namespace trimtab

int main() { return trimtab::Run(); }
