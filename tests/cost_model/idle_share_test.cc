// What idle pipeline stages cost where ranks share cores, against schedules worked by hand.
#include "cost_model/idle_share.h"

#include <gtest/gtest.h>

#include "cost_model/closed_form.h"

namespace trimtab {
namespace {

Cluster Machine(int64_t cores) {
  Cluster cluster = LocalMachine(BuiltinProfile("cpu"));
  cluster.cores = cores;
  return cluster;
}

RunConfig Pipeline(int64_t pp, int64_t micro_batches, int64_t tp = 1) {
  RunConfig run;
  run.layout.pp = pp;
  run.layout.tp = tp;
  run.global_batch = micro_batches;
  return run;
}

TEST(IdleShare, IsAllOfItWhereThereAreCoresForAll) {
  EXPECT_EQ(IdleShare(Pipeline(4, 8), Machine(4)), 1);
  EXPECT_EQ(IdleShare(Pipeline(4, 8), Machine(64)), 1);
  EXPECT_EQ(IdleShare(Pipeline(1, 8), Machine(1)), 1);
  Cluster gpus = LoadCluster("1x8xh100");
  EXPECT_EQ(IdleShare(Pipeline(8, 8), gpus), 1);
}

TEST(IdleShare, OneCoreIsNeverIdle) {
  for (const int64_t micro_batches : {1, 2, 3, 16}) {
    EXPECT_EQ(IdleShare(Pipeline(3, micro_batches), Machine(1)), 0);
  }
}

// Four stages of one thread on two cores. A pass takes four units of a core's time while all four
// share two cores, two where one or two stages are busy, three with three of them.
TEST(IdleShare, IsWhatTooFewBusyStagesLeaveUnused) {
  // One micro batch: eight of 16 units, of which it would take 4 if no core ever idled.
  EXPECT_DOUBLE_EQ(IdleShare(Pipeline(4, 1), Machine(2)), (8 - 4) / 12.0);
  // Two: busy are 1 2 2 2 1 stages.
  EXPECT_DOUBLE_EQ(IdleShare(Pipeline(4, 2), Machine(2)), (10 - 8) / 12.0);
  // Four: busy are 1 2 3 4 3 2 1 stages.
  EXPECT_DOUBLE_EQ(IdleShare(Pipeline(4, 4), Machine(2)), (18 - 16) / 12.0);
  // More fill and drain it no longer.
  EXPECT_DOUBLE_EQ(IdleShare(Pipeline(4, 32), Machine(2)), (18 - 16) / 12.0);
}

TEST(IdleShare, AStageWithRanksForAllCoresUsesThemAlone) {
  EXPECT_EQ(IdleShare(Pipeline(2, 1, /*tp=*/2), Machine(2)), 0);
}

TEST(IdleShare, GrowsWithTheCores) {
  double before = 0;
  for (const int64_t cores : {1, 2, 3, 5, 8}) {
    const double share = IdleShare(Pipeline(8, 16), Machine(cores));
    EXPECT_GE(share, before) << cores;
    before = share;
  }
  EXPECT_EQ(before, 1);
}

TEST(IdleShare, StandsInTheEstimate) {
  RunConfig run = Pipeline(4, 4);
  run.model = LoadModelConfig("gpt2-10m");
  run.sequence_length = 64;
  run.threads_per_rank = 1;
  const auto bubble = [&run](int64_t cores) {
    return ClosedForm(run, Machine(cores)).breakdown_s.bubble;
  };
  EXPECT_GT(bubble(4), 0);
  EXPECT_EQ(bubble(1), 0);
}

}  // namespace
}  // namespace trimtab
