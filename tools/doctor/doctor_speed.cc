#include "tools/doctor/doctor_speed.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "cost_model/hardware/cluster.h"
#include "engine/base/log.h"
#include "engine/runtime/ranks.h"
#include "profiler/probe.h"

namespace trimtab {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kTurnSeconds = 0.5;
constexpr size_t kLeftOut = 20;  // one reading in so many, at either end
constexpr double kSteadySpeed = 0.95;
constexpr double kNearlySteadySpeed = 0.8;

/// Probe readings of one turn: `ranks` with `threads` each.
std::vector<double> ReadForATurn(int ranks, int threads) {
  RunConfig run;
  run.layout.dp = ranks;
  run.threads_per_rank = threads;
  std::vector<double> readings;
  RunRanks(run, [&](Rank& rank) {
    Probe probe(rank);
    const Clock::time_point start = Clock::now();
    bool more = true;
    while (more) {
      const double seconds = probe.Seconds();
      if (rank.speaks()) readings.push_back(seconds);
      const std::chrono::duration<double> took = Clock::now() - start;
      more = rank.FromFirst(took.count() < kTurnSeconds) != 0;
    }
  });
  return readings;
}

}  // namespace

SpeedFinding DescribeSpeed(const std::vector<std::vector<double>>& probe_s) {
  double slowest = 1;
  for (std::vector<double> readings : probe_s) {
    std::sort(readings.begin(), readings.end());
    const size_t left_out = readings.size() / kLeftOut;
    slowest = std::min(slowest, readings[left_out] / readings[readings.size() - 1 - left_out]);
  }
  if (slowest >= kSteadySpeed) {
    return {true,
            fmt::format("steady: within {:.0f} %; a search needs few rounds", 100 * (1 - slowest))};
  }
  const std::string range = fmt::format("wanders between {:.2f} and 1.00 within seconds", slowest);
  if (slowest >= kNearlySteadySpeed) {
    return {false, range + "; expect a search to take up to twice as long; recommendations hold"};
  }
  return {false, range +
                     "; expect a search to take two to three times as long; recommendations still "
                     "hold, with wider intervals"};
}

SpeedFinding CheckSpeed(double seconds) {
  const int cores = static_cast<int>(CoresOfThisMachine());
  std::vector<std::pair<int, int>> ways = {{1, cores}};  // ranks and threads
  if (cores > 1) ways.emplace_back(cores, 1);
  LogInfo("watching the machine's speed for {:.0f} s", seconds);
  std::vector<std::vector<double>> readings(ways.size());
  const Clock::time_point start = Clock::now();
  const std::chrono::duration<double> limit(seconds);
  do {
    for (size_t i = 0; i < ways.size(); ++i) {
      for (const double each : ReadForATurn(ways[i].first, ways[i].second)) {
        readings[i].push_back(each);
      }
    }
  } while (Clock::now() - start < limit);
  return DescribeSpeed(readings);
}

}  // namespace trimtab
