#include "profiler/probe.h"

#include <gtest/gtest.h>

namespace trimtab {
namespace {

RunConfig RunOf(int64_t ranks) {
  RunConfig run;
  run.layout.dp = ranks;
  run.threads_per_rank = 1;
  return run;
}

TEST(ProbeTest, TimesEveryRankTogether) {
  for (const int64_t ranks : {1, 2, 4}) {
    std::vector<double> seconds(static_cast<size_t>(ranks));
    RunRanks(RunOf(ranks), [&](Rank& rank) {
      Probe probe(rank);
      seconds[static_cast<size_t>(rank.index())] = probe.Seconds();
    });
    for (const double each : seconds) EXPECT_GT(each, 0) << ranks << " ranks";
  }
}

TEST(ProbeTest, ItsMemoryIsNotTheRuns) {
  RunConfig run = RunOf(2);
  run.memory_per_rank_bytes = 1;  // nothing fits
  RunRanks(run, [&](Rank& rank) {
    {
      Probe probe(rank);
      probe.Seconds();
    }
    EXPECT_EQ(rank.device().memory().peak_total(), 0);
    EXPECT_EQ(rank.device().memory().current_total(), 0);
  });
}

}  // namespace
}  // namespace trimtab
