// Where messages take longest, both tiers say so, and neither counts one twice.

#include <fmt/core.h>
#include <gtest/gtest.h>

#include "cost_model/closed_form/closed_form.h"
#include "cost_model/dry_run/dry_run.h"
#include "engine/families/load_config.h"

namespace trimtab {
namespace {

/// Nodes of one GPU each behind a network of `bandwidth` bytes/s.
Cluster NodesOfOne(int64_t nodes, double bandwidth) {
  Cluster cluster = LoadCluster(fmt::format("{}x1xh100", nodes));
  cluster.profile.network_bandwidth.value = bandwidth;
  return cluster;
}

RunConfig RunOf(const ModelConfig& model, const Cluster& cluster, const std::string& layout,
                int64_t sequences) {
  RunConfig run;
  run.model = model;
  run.device = DeviceKind::kCuda;
  run.sequence_length = 4096;
  run.layout = ParseLayout(layout + ",precision=bf16", cluster.max_ranks);
  run.global_batch = sequences;
  return run;
}

ModelConfig Layers(const std::string& model, int64_t layers) {
  ModelConfig config = LoadModelConfig(model);
  config.num_layers = layers;
  return config;
}

TEST(MessageTiers, RingsSendAndReceiveAtOnce) {
  const Cluster cluster = NodesOfOne(8, 1e9);
  const RunConfig run = RunOf(Layers("llama2-7b", 4), cluster, "cp=8,mbs=1,zero=1", 32);
  const Estimate dry = DryRun(run, cluster);
  ASSERT_GT(dry.breakdown_s.exposed_cp, 0.4 * dry.step_time_s) << "messages bind";
  EXPECT_NEAR(ClosedForm(run, cluster).step_time_s, dry.step_time_s, 0.02 * dry.step_time_s);
}

TEST(MessageTiers, OpsAreSlowedNoMoreThanAllOfTheTime) {
  for (const double bandwidth : {1e8, 1e9, 1e10}) {
    Cluster cluster = NodesOfOne(4, bandwidth);
    const RunConfig run =
        RunOf(Layers("llama2-7b", 4), cluster, "cp=2,mbs=1,zero=0,overlap_grad_reduce=0", 4);
    const double alone_s = ClosedForm(run, cluster).breakdown_s.compute;
    cluster.stack.slowdown.value = 0.2;
    for (const Estimate& slowed : {ClosedForm(run, cluster), DryRun(run, cluster)}) {
      EXPECT_GT(slowed.breakdown_s.compute, alone_s);
      EXPECT_LE(slowed.breakdown_s.compute, 1.2001 * alone_s);
    }
  }
}

// Each micro batch's activations leave a stage one after the other, those of all its chunks.
TEST(MessageTiers, PipelinesAreNoFasterThanTheirWires) {
  for (const int64_t vp : {1, 2, 4}) {
    const Cluster cluster = NodesOfOne(4, 1e9);
    const RunConfig run =
        RunOf(Layers("llama2-7b", 16), cluster, fmt::format("pp=4,vp={},mbs=1", vp), 16);
    const double message_bytes = 4096.0 * 4096 * 2;
    const double wire_s = 16.0 * static_cast<double>(vp) * message_bytes / 1e9;
    const double dry_s = DryRun(run, cluster).step_time_s;
    const double closed_s = ClosedForm(run, cluster).step_time_s;
    EXPECT_GT(closed_s, wire_s) << vp;
    EXPECT_LE(closed_s, 1.02 * dry_s) << vp;
  }
}

// As many micro batches are under way as there are stages, and each has messages on its way.
TEST(MessageTiers, StagesWaitForRoundTrips) {
  for (const char* schedule : {"1f1b", "zero-bubble"}) {
    for (const double bandwidth : {6e9, 12e9}) {
      const Cluster cluster = NodesOfOne(8, bandwidth);
      const auto layout = fmt::format("pp=8,mbs=1,schedule={}", schedule);
      const RunConfig run = RunOf(Layers("llama2-7b", 16), cluster, layout, 64);
      const double dry_s = DryRun(run, cluster).step_time_s;
      EXPECT_NEAR(ClosedForm(run, cluster).step_time_s, dry_s, 0.03 * dry_s) << layout;
    }
  }
}

// Of an interleaved pipeline's messages, those that fill and drain it are waited for, and hardly
// any other: stages ask for their inputs before they need them.
TEST(MessageTiers, InterleavedStagesHideTheirMessages) {
  for (const int64_t vp : {2, 4}) {
    const auto layout = fmt::format("pp=4,vp={},mbs=1", vp);
    const Cluster fast = NodesOfOne(4, 1e14);
    const Cluster slow = NodesOfOne(4, 2e10);
    const RunConfig run = RunOf(Layers("llama2-7b", 16), fast, layout, 32);
    const double fast_s = DryRun(run, fast).step_time_s;
    const double slow_s = DryRun(run, slow).step_time_s;
    EXPECT_GT(slow_s, fast_s);
    EXPECT_NEAR(ClosedForm(run, slow).step_time_s, slow_s, 0.01 * slow_s) << layout;
  }
}

TEST(MessageTiers, GatheringBesideTheNextStepIsNeverSlower) {
  for (const char* model : {"llama3.2-1b", "llama2-7b"}) {
    Cluster cluster = LoadCluster("4x8xh100");
    cluster.profile.network_bandwidth.value = 1e10;
    const RunConfig beside =
        RunOf(Layers(model, 8), cluster, "mbs=1,zero=1,overlap_param_gather=1", 32);
    RunConfig after = beside;
    after.layout.overlap_param_gather = false;
    EXPECT_LE(DryRun(beside, cluster).step_time_s, 1.0001 * DryRun(after, cluster).step_time_s);
    RunConfig none = after;
    none.layout.overlap_grad_reduce = false;
    EXPECT_LE(DryRun(after, cluster).step_time_s, 1.0001 * DryRun(none, cluster).step_time_s);
  }
}

TEST(MessageTiers, NoPartOfAStepIsNegative) {
  ModelConfig model = Layers("llama3-8b", 4);
  model.hidden_size = 1024;
  model.num_heads = 8;
  model.ffn_hidden_size = 4096;
  model.vocab_size = 256000;
  Cluster cluster = LoadCluster("8x8xb200");
  cluster.profile.network_bandwidth.value = 1e9;
  const RunConfig run = RunOf(model, cluster, "pp=4,mbs=2,zero=3,schedule=zero-bubble", 1024);
  for (const Estimate& estimate : {ClosedForm(run, cluster), DryRun(run, cluster)}) {
    for (const BreakdownPart& part : kBreakdownParts) {
      EXPECT_GE(estimate.breakdown_s.*part.seconds, 0) << part.key;
    }
    EXPECT_NEAR(estimate.breakdown_s.total(), estimate.step_time_s, 1e-9 * estimate.step_time_s);
  }
}

// The stage with the head computes longest; others, which end as late, mostly wait for it.
TEST(MessageTiers, PartsAreThoseOfTheBusiestStage) {
  ModelConfig model = Layers("llama3-8b", 4);
  model.vocab_size = 256000;
  const Cluster cluster = LoadCluster("8xh100");
  const RunConfig run = RunOf(model, cluster, "pp=4,mbs=1", 32);
  const Estimate dry = DryRun(run, cluster);
  const Estimate closed = ClosedForm(run, cluster);
  EXPECT_GT(dry.breakdown_s.compute, 0.8 * dry.step_time_s);
  EXPECT_NEAR(dry.breakdown_s.compute, closed.breakdown_s.compute, 0.01 * dry.step_time_s);
}

}  // namespace
}  // namespace trimtab
