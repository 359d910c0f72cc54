// Prints what it takes to find the best predicted layouts of large problems, with the proof.
//
//   bazel run //tests/search/space:space_benchmark [-- THREADS]
#include <fmt/format.h>
#include <sys/resource.h>

#include <chrono>
#include <cstdlib>
#include <string>

#include "cost_model/hardware/numerics.h"
#include "engine/families/load_config.h"
#include "search/space/predictor.h"
#include "search/walk/best_layouts.h"

namespace trimtab {
namespace {

struct Case {
  const char* model;
  const char* cluster;
  int64_t global_batch;
  int64_t sequence_length;
};
constexpr Case kCases[] = {{"gpt3-175b", "128x8xa100", 1536, 2048},
                           {"llama3-405b", "2048x8xh100", 2048, 8192},
                           {"deepseek-v3", "256x8xh100", 15360, 4096},
                           {"mixtral-8x22b", "256x8xh100", 1024, 8192},
                           {"qwen3-235b-a22b", "256x8xh100", 2048, 4096}};

rusage Usage() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage;
}

/// Seconds of cores that this process has used: what is left of a busy machine's wall time.
double CoreSeconds() {
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds(Usage().ru_utime) + seconds(Usage().ru_stime);
}

void Find(const Case& each, int threads) {
  Problem problem;
  problem.model = LoadModelConfig(each.model);
  problem.cluster = LoadCluster(each.cluster);
  problem.global_batch = each.global_batch;
  problem.sequence_length = each.sequence_length;
  problem.precisions = ResolvePrecisions({"auto"}, problem.cluster.profile);
  const double cores_before_s = CoreSeconds();
  const auto begin = std::chrono::steady_clock::now();
  const std::unique_ptr<Predictor> predictor = MakeCostModelPredictor(problem);
  const BestLayouts best =
      FindBestLayouts(problem, Shortlist(Objective::kThroughput), *predictor, threads);
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  const WalkCounts& counts = best.counts;
  fmt::print("{} on {}: {:.2f} s ({:.2f} s of cores), {} layouts, {:.3f} % visited ({}), {} fit\n",
             each.model, each.cluster, seconds, CoreSeconds() - cores_before_s, counts.size,
             100 * static_cast<double>(counts.visited) / static_cast<double>(counts.size),
             counts.visited, counts.fitting);
  int64_t by_rule = 0;
  for (const auto& [rule, count] : counts.cut_by_rule) by_rule += count;
  fmt::print("  cut: {} by rule, {} by memory, {} by bound; peak memory of this process {} MB\n",
             by_rule, counts.cut_by_memory, counts.cut_by_bound, Usage().ru_maxrss / 1000);
  const Shortlisted* first = nullptr;
  for (const auto& one : best.list) {
    if (first == nullptr || one->prediction.step_time_s < first->prediction.step_time_s) {
      first = one.get();
    }
  }
  if (first == nullptr) return;
  fmt::print("  best: {:.3f} s, {}\n", first->prediction.step_time_s, CandidateKey(first->run));
}

int Run(int argc, char** argv) {
  const int threads = argc > 1 ? std::atoi(argv[1]) : 2;
  for (const Case& each : kCases) {
    if (argc > 2 && std::string(argv[2]) != each.model) continue;
    Find(each, threads);
  }
  return 0;
}

}  // namespace
}  // namespace trimtab

int main(int argc, char** argv) { return trimtab::Run(argc, argv); }
