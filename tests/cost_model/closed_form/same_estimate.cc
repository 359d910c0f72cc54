#include "tests/cost_model/closed_form/same_estimate.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "cost_model/dry_run/dry_run.h"

namespace trimtab {
namespace {

// The two tiers add the same prices in another order.
constexpr double kTimeTolerance = 1e-9;

/// What the closed form may leave out of a step's time where it hides too much: models as small as
/// those of tests wait for latencies most of the time.
constexpr double kHiddenShare = 0.2;

}  // namespace

void ExpectSameEstimate(const Estimate& closed, const Estimate& dry, Differences differences) {
  EXPECT_EQ(closed.hardware_flops, dry.hardware_flops);
  EXPECT_EQ(closed.op_count, dry.op_count);
  for (int kind = 0; kind < kCollectiveKindCount; ++kind) {
    for (int group = 0; group < kGroupKindCount; ++group) {
      const auto collective = static_cast<CollectiveKind>(kind);
      const auto kind_of_group = static_cast<GroupKind>(group);
      const CommTotal& a = closed.comm.at(collective, kind_of_group);
      const CommTotal& b = dry.comm.at(collective, kind_of_group);
      EXPECT_EQ(a.count, b.count) << Name(collective) << " " << Name(kind_of_group);
      EXPECT_EQ(a.bytes, b.bytes) << Name(collective) << " " << Name(kind_of_group);
    }
  }
  EXPECT_EQ(closed.memory.weights, dry.memory.weights);
  EXPECT_EQ(closed.memory.gradients, dry.memory.gradients);
  EXPECT_EQ(closed.memory.optimizer, dry.memory.optimizer);
  EXPECT_EQ(closed.memory.activations, dry.memory.activations);
  EXPECT_EQ(closed.memory.peak_total, dry.memory.peak_total);

  const double tolerance = kTimeTolerance * dry.breakdown_s.total();
  const double hidden = dry.breakdown_s.exposed_dp - closed.breakdown_s.exposed_dp;
  EXPECT_GE(hidden, -tolerance);
  EXPECT_LE(hidden, differences.overlap ? kHiddenShare * dry.breakdown_s.total() : tolerance);
  if (!differences.pipeline) {
    EXPECT_NEAR(closed.step_time_s + hidden, dry.step_time_s, tolerance);
    EXPECT_EQ(dry.breakdown_s.bubble, 0);
    EXPECT_EQ(dry.breakdown_s.exposed_pp, 0);
  }
  const Breakdown& a = closed.breakdown_s;
  const Breakdown& b = dry.breakdown_s;
  EXPECT_NEAR(a.compute, b.compute, tolerance);
  EXPECT_NEAR(a.exposed_tp, b.exposed_tp, tolerance);
  EXPECT_NEAR(a.exposed_cp, b.exposed_cp, tolerance);
  EXPECT_NEAR(a.exposed_ep, b.exposed_ep, tolerance);
  EXPECT_NEAR(a.recompute, b.recompute, tolerance);
  EXPECT_NEAR(a.optimizer, b.optimizer, tolerance);
  EXPECT_NEAR(a.overhead, b.overhead, tolerance);
}

void ExpectSameStages(ClosedFormEstimator& estimator, const RunConfig& run,
                      const Cluster& cluster) {
  const std::vector<Estimate> stages = estimator.Stages(run);
  for (int64_t stage = 0; stage < run.layout.pp; ++stage) {
    SCOPED_TRACE("stage " + std::to_string(stage));
    ExpectSameEstimate(stages[static_cast<size_t>(stage)], DryRunStage(run, cluster, stage),
                       {.pipeline = true, .overlap = cluster.device != DeviceKind::kCpu});
  }
}

}  // namespace trimtab
