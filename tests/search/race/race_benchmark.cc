// Races on fake machines whose true speeds are known: how often the recommendation is within 1 % of
// the true best, how often intervals hold the truth, and what a race costs against single visits of
// ten steps to its first candidates (at full speed).
//
//   bazel run //tests/search/race:race_benchmark -- [searches of each kind] [first seed] [visits]
//       [kinds]

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <numeric>

#include "profiler/stats.h"
#include "tests/search/fake_machine.h"

namespace trimtab {
namespace {

constexpr int64_t kFewVisits = 30;  // what a minute has room for
constexpr int64_t kMostVisits = 1000;

double Mean(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

void Main(int searches, uint64_t first_seed, int64_t most_visits, std::vector<std::string> kinds) {
  if (kinds.empty()) {
    kinds = kTraceKinds;
    kinds.insert(kinds.end(), {"loaded", "mispriced"});
  }
  fmt::print("{:<10} {:>9} {:>9} {:>9} {:>9} {:>10} {:>8} {:>8} {:>8} {:>8}\n", "trace",
             "within 1%", "mean", "regret95", "worst", "intervals", "rounds", "visits", "time/1x",
             "scatter");
  for (const std::string& kind : kinds) {
    std::vector<double> regrets;
    std::vector<double> rounds;
    std::vector<double> visits;
    double seconds = 0;
    double single_seconds = 0;
    std::vector<double> scatters;
    int64_t intervals = 0;
    int64_t right = 0;
    for (int i = 0; i < searches; ++i) {
      const FakeMachineOptions options = MakeMachine(kind, first_seed + static_cast<uint64_t>(i));
      const bool few = kind == "loaded" || kind == "mispriced";
      const FakeMachine::Outcome outcome =
          FakeMachine(options).Run({}, few ? std::min(most_visits, kFewVisits) : most_visits);
      regrets.push_back(outcome.regret);
      rounds.push_back(static_cast<double>(outcome.rounds));
      visits.push_back(static_cast<double>(outcome.visits));
      seconds += outcome.seconds;
      single_seconds += outcome.single_seconds;
      scatters.push_back(100 * outcome.race.fit->scatter());
      intervals += outcome.intervals;
      right += outcome.intervals_right;
    }
    std::sort(regrets.begin(), regrets.end());
    const auto within =
        std::count_if(regrets.begin(), regrets.end(), [](double r) { return r <= 0.01; });
    fmt::print(
        "{:<10} {:>8.1f}% {:>8.2f}% {:>8.2f}% {:>8.2f}% {:>9.1f}% {:>8.0f} {:>8.0f} {:>8.2f} "
        "{:>7.2f}%\n",
        kind, 100.0 * static_cast<double>(within) / searches, 100 * Mean(regrets),
        100 * regrets[static_cast<size_t>(0.95 * searches)], 100 * regrets.back(),
        100.0 * static_cast<double>(right) / static_cast<double>(intervals), Median(rounds),
        Mean(visits), seconds / single_seconds, Median(scatters));
    std::fflush(stdout);
  }
}

}  // namespace
}  // namespace trimtab

int main(int argc, char** argv) {
  trimtab::Main(argc > 1 ? std::max(1, std::atoi(argv[1])) : 40,
                argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 1000,
                argc > 3 ? std::atoll(argv[3]) : trimtab::kMostVisits,
                {argv + std::min(argc, 4), argv + argc});
}
