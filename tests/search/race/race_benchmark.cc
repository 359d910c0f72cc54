// Races on fake machines whose true speeds are known: how often the recommendation is within 1 % of
// the true best, how often intervals hold the truth, and what a race costs against single visits of
// ten steps to its first candidates (at full speed).
//
// The same machines are raced on by plain policies (plain_policy.h): with any number of entrants,
// and with no more than the first eight by prediction.
//
//   bazel run //tests/search/race:race_benchmark -- [searches of each kind] [first seed] [visits]
//       [kinds]

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "profiler/stats.h"
#include "tests/search/fake_machine.h"
#include "tests/search/race/plain_policy.h"

namespace trimtab {
namespace {

constexpr int64_t kFewVisits = 30;  // what a minute has room for
constexpr int64_t kMostVisits = 1000;

double Mean(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

/// The outcome of the races of one policy on machines of one kind.
class Tally {
 public:
  void Add(const FakeMachine::Outcome& outcome) {
    regrets_.push_back(outcome.regret);
    rounds_.push_back(static_cast<double>(outcome.rounds));
    visits_.push_back(static_cast<double>(outcome.visits));
    scatters_.push_back(100 * outcome.race.fit->scatter());
    seconds_ += outcome.seconds;
    single_seconds_ += outcome.single_seconds;
    intervals_ += outcome.intervals;
    right_ += outcome.intervals_right;
  }

  void Print(const std::string& kind, const std::string& policy) {
    std::sort(regrets_.begin(), regrets_.end());
    const auto searches = static_cast<double>(regrets_.size());
    const auto within =
        std::count_if(regrets_.begin(), regrets_.end(), [](double r) { return r <= 0.01; });
    fmt::print(
        "{:<10} {:<8} {:>8.1f}% {:>8.2f}% {:>8.2f}% {:>8.2f}% {:>9.1f}% {:>8.0f} {:>8.1f} {:>8.2f} "
        "{:>7.2f}%\n",
        kind, policy, 100 * static_cast<double>(within) / searches, 100 * Mean(regrets_),
        100 * regrets_[static_cast<size_t>(0.95 * searches)], 100 * regrets_.back(),
        100 * static_cast<double>(right_) / static_cast<double>(std::max<int64_t>(1, intervals_)),
        Median(rounds_), Mean(visits_), seconds_ / single_seconds_, Median(scatters_));
    std::fflush(stdout);
  }

 private:
  std::vector<double> regrets_;
  std::vector<double> rounds_;
  std::vector<double> visits_;
  std::vector<double> scatters_;
  double seconds_ = 0;
  double single_seconds_ = 0;
  int64_t intervals_ = 0;
  int64_t right_ = 0;
};

void Main(int searches, uint64_t first_seed, int64_t most_visits, std::vector<std::string> kinds) {
  if (kinds.empty()) {
    kinds = kTraceKinds;
    kinds.insert(kinds.end(), {"outliers", "loaded", "mispriced"});
  }
  constexpr int64_t kFewEntrants = 8;
  const RacePolicy belief;
  const PlainPolicy plain;
  const PlainPolicy plain_of_few(kFewEntrants);
  const std::pair<const char*, const RacePolicy*> policies[] = {
      {"belief", &belief}, {"plain", &plain}, {"plain-8", &plain_of_few}};
  fmt::print("{:<10} {:<8} {:>9} {:>9} {:>9} {:>9} {:>10} {:>8} {:>8} {:>8} {:>8}\n", "trace",
             "policy", "within 1%", "mean", "regret95", "worst", "intervals", "rounds", "visits",
             "time/1x", "scatter");
  for (const std::string& kind : kinds) {
    const bool few = kind == "loaded" || kind == "mispriced";
    const int64_t most = few ? std::min(most_visits, kFewVisits) : most_visits;
    for (const auto& [name, policy] : policies) {
      Tally tally;
      for (int i = 0; i < searches; ++i) {
        const FakeMachineOptions options = MakeMachine(kind, first_seed + static_cast<uint64_t>(i));
        tally.Add(FakeMachine(options).Run({}, most, *policy));
      }
      tally.Print(kind, name);
    }
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
