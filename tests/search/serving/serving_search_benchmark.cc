// How long whole searches for serving take: Llama 3.1 70B on 8 H200, closed and open loops with
// requirements.
//
//   serving_search_benchmark [THREADS]
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <thread>

#include "cost_model/serving/serving_price.h"
#include "search/serving/serving_search.h"
#include "tests/search/serving/serving_problems.h"

namespace trimtab {
namespace {

constexpr char kLengths[] = "lognormal:1000:0.6/uniform:100-500";

struct Asked {
  const char* name;
  int64_t requests;
  int64_t concurrency;
  double rate;
  const char* requirements;
};
constexpr Asked kAsked[] = {
    {"64 clients", 256, 64, 0, "ttft.p99<6s,tpot.mean<30ms"},
    {"512 clients", 1024, 512, 0, "tpot.p99<100ms"},
    {"2 requests/s", 300, 0, 2, "ttft.p99<2s,tpot.mean<30ms"},
    {"8 requests/s", 1000, 0, 8, "ttft.p99<2s,tpot.mean<40ms"},
    {"40 requests/s: too many", 1000, 0, 40, "ttft.p99<1s,tpot.mean<20ms"},
};

void Run(const Asked& asked, int threads) {
  ServingProblem problem =
      ProblemOn("8xh200", "llama3.1-70b",
                {.requests = DrawRequests(kLengths, asked.requests, asked.rate, 1),
                 .concurrency = asked.concurrency});
  problem.caches = {DType::kBf16, DType::kF8E4M3};
  const ServingEngine& engine = *ServingEngineOf("trimtab", "");
  problem.memory_bytes =
      static_cast<int64_t>(engine.memory_share.value * VisibleMemory(problem.cluster.profile) -
                           engine.memory_bytes.value);
  problem.requirements = ParseRequirements(asked.requirements);
  const auto start = std::chrono::steady_clock::now();
  const ServingSearchResult found = SearchServing(problem, threads);
  const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - start;
  fmt::print(
      "{:<24} {:5.2f} s  {} candidates: {} simulated, {} ended on the way, {} alike, {} by bounds, "
      "{} by memory\n  {}: {}\n",
      asked.name, spent.count(), found.size, found.simulated, found.cut_on_the_way, found.alike,
      found.cut_by_bound, found.cut_by_memory, found.best().meets() ? "best" : "closest",
      found.best().candidate.Key());
}

}  // namespace
}  // namespace trimtab

int main(int argc, char** argv) {
  const int cores = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  const int threads = argc > 1 ? std::max(1, std::atoi(argv[1])) : cores;
  for (const trimtab::Asked& each : trimtab::kAsked) trimtab::Run(each, threads);
  return 0;
}
