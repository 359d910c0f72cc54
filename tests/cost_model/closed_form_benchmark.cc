// Prints how many candidates a second the closed form estimates on one core.
//
//   bazel run //tests/cost_model:closed_form_benchmark
#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <vector>

#include "cost_model/closed_form.h"
#include "engine/config/rules.h"

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
              run.layout.recompute = {layers > 0 ? RecomputeKind::kFull : RecomputeKind::kNone,
                                      layers > 0 ? layers : -1};
              if (FirstBrokenRule(run) == nullptr) runs.push_back(run);
            }
          }
        }
      }
    }
  }
  return runs;
}

int Run() {
  const Cluster cluster = LoadCluster("128x8xh100");
  const ModelConfig model = LoadModelConfig("gpt3-175b");
  const std::vector<RunConfig> runs = Candidates(model, cluster);
  ClosedFormEstimator estimator(model, 2048, cluster);
  double checksum = 0;
  for (const RunConfig& run : runs) checksum += estimator.Run(run).step_time_s;
  const auto begin = std::chrono::steady_clock::now();
  for (int round = 0; round < kRounds; ++round) {
    // A new estimator: what it remembers within a search is part of what is measured.
    ClosedFormEstimator fresh(model, 2048, cluster);
    for (const RunConfig& run : runs) checksum += fresh.Run(run).step_time_s;
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  const double candidates = static_cast<double>(runs.size()) * kRounds;
  fmt::print("{} layouts, {:.0f} candidates/s on one core ({:.2f} us each; checksum {:.3g})\n",
             runs.size(), candidates / took.count(), 1e6 * took.count() / candidates, checksum);
  return 0;
}

}  // namespace
}  // namespace trimtab

int main() { return trimtab::Run(); }
