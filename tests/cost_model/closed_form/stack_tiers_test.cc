// Both tiers assume the same of another software stack, and its numbers do in each what they say.
#include <gtest/gtest.h>

#include "cost_model/closed_form/closed_form.h"
#include "cost_model/dry_run/dry_run.h"
#include "engine/families/load_config.h"

namespace trimtab {
namespace {

RunConfig RunOf(const std::string& model, const std::string& layout) {
  RunConfig run;
  run.model = LoadModelConfig(model);
  run.model.num_layers = 4;
  run.device = DeviceKind::kCuda;
  run.sequence_length = 2048;
  run.layout = ParseLayout(layout, 16);
  const int64_t micro_batches = run.layout.pp > 1 ? 16 : 4;
  run.global_batch = micro_batches * run.layout.micro_batch * run.layout.dp;
  return run;
}

const char* const kLayouts[] = {
    "tp=2,sp=1,zero=1,precision=bf16,mbs=2",
    "zero=0,precision=bf16,mbs=2,recompute=full",
    "tp=4,sp=1,zero=1,precision=bf16,mbs=1,recompute=selective:core_attn",
    "zero=3,precision=bf16,mbs=2",
    "tp=2,sp=1,pp=4,zero=1,precision=bf16,mbs=2",
    "tp=2,sp=1,pp=2,vp=2,schedule=interleaved-1f1b,zero=1,overlap_param_gather=1,precision=bf16,"
    "mbs=2",
};

TEST(StackTiers, AgreeOnEveryStack) {
  for (const SoftwareStack& stack : BuiltinStacks()) {
    Cluster cluster = LoadCluster("2x8xh100");
    cluster.stack = stack;
    for (const char* layout : kLayouts) {
      SCOPED_TRACE(stack.name + " " + layout);
      const RunConfig run = RunOf("llama2-7b", layout);
      const Estimate closed = ClosedForm(run, cluster);
      const Estimate dry = DryRun(run, cluster);
      // The closed form hides as much of the data-parallel messages as can be hidden at all; in the
      // dry run ops that messages slow down give these more time to hide in.
      const double more = 0.05 + 0.3 * stack.slowdown.value;
      EXPECT_LE(closed.step_time_s, (1 + more) * dry.step_time_s);
      // Nor does it see what stages wait for while a pipeline fills and drains, once a step.
      const double less = run.layout.pp > 1 ? 0.25 : 0.03;
      EXPECT_GE(closed.step_time_s, (1 - less) * dry.step_time_s);
      EXPECT_NEAR(closed.breakdown_s.host, dry.breakdown_s.host, 0.06 * dry.step_time_s);
      EXPECT_NEAR(closed.breakdown_s.recompute, dry.breakdown_s.recompute, 0.01 * dry.step_time_s);
      EXPECT_NEAR(closed.breakdown_s.exposed_tp, dry.breakdown_s.exposed_tp,
                  0.01 * dry.step_time_s);
      EXPECT_EQ(closed.memory.peak_total, dry.memory.peak_total);
      EXPECT_NEAR(dry.breakdown_s.total(), dry.step_time_s, 1e-9 * dry.step_time_s);
      EXPECT_NEAR(closed.breakdown_s.total(), closed.step_time_s, 1e-9 * closed.step_time_s);
    }
  }
}

TEST(StackTiers, ExpertsWaitForTheHostInBoth) {
  Cluster cluster = LoadCluster("2x8xh100");
  cluster.stack = LoadSoftwareStack("nemo");
  const RunConfig run = RunOf("mixtral-8x7b", "ep=8,zero=1,precision=bf16,mbs=1");
  const Estimate closed = ClosedForm(run, cluster);
  const Estimate dry = DryRun(run, cluster);
  EXPECT_NEAR(closed.step_time_s, dry.step_time_s, 0.03 * dry.step_time_s);
  EXPECT_NEAR(closed.breakdown_s.host, dry.breakdown_s.host, 0.06 * dry.step_time_s);
}

TEST(StackTiers, WhatRunsAgainIsKeptInBoth) {
  Cluster cluster = LoadCluster("2x8xh100");
  const RunConfig run = RunOf("llama2-7b", "zero=3,precision=bf16,mbs=2,recompute=full");
  const int64_t ours = ClosedForm(run, cluster).memory.peak_total;
  cluster.stack.kept_bytes.value = 10;
  const int64_t closed = ClosedForm(run, cluster).memory.peak_total;
  EXPECT_EQ(closed, ours + 10 * (2 * 2048) * 4) << "of each token in four layers";
  EXPECT_EQ(DryRun(run, cluster).memory.peak_total, closed);
}

// Where moving shards takes longest, that is what a step takes: what runs again beside it changes
// nothing, whatever share of it a stack leaves out.
TEST(StackTiers, MessagesOfShardsBoundAStepWhateverRunsAgain) {
  for (const SoftwareStack& stack : BuiltinStacks()) {
    Cluster cluster = LoadCluster("2x8xh100");
    cluster.stack = stack;
    cluster.profile.network_bandwidth.value /= 20;
    std::vector<double> closed_s;
    for (const char* layout :
         {"zero=3,precision=bf16,mbs=1,recompute=full", "zero=3,precision=bf16,mbs=1"}) {
      SCOPED_TRACE(stack.name + " " + layout);
      RunConfig run = RunOf("llama2-7b", layout);
      run.model.num_layers = 16;
      const Estimate closed = ClosedForm(run, cluster);
      const double dry_s = DryRun(run, cluster).step_time_s;
      EXPECT_LE(closed.step_time_s, 1.01 * dry_s);
      EXPECT_GE(closed.step_time_s, 0.97 * dry_s);
      EXPECT_NEAR(closed.breakdown_s.total(), closed.step_time_s, 1e-9 * closed.step_time_s);
      closed_s.push_back(closed.step_time_s);
    }
    EXPECT_LE(closed_s[1], 1.001 * closed_s[0]) << stack.name;
  }
}

// Stages do not hand on what each of them waits for at its own end, or finds there when it begins.
TEST(StackTiers, PipelinesWaitOnceForWhatMovesOnceAStep) {
  Cluster cluster = LoadCluster("2x8xh100");
  RunConfig run = RunOf("llama2-7b", "pp=8,zero=1,precision=bf16,mbs=1,overlap_param_gather=1");
  run.model.num_layers = 16;
  run.layout.schedule = Schedule::kInterleaved1F1B;
  run.layout.vp = 2;
  const Estimate hidden = DryRun(run, cluster);
  cluster.stack.dp_exposed.value = 1;
  const Estimate exposed = DryRun(run, cluster);
  const double more_s = exposed.breakdown_s.exposed_dp - hidden.breakdown_s.exposed_dp;
  EXPECT_GT(more_s, 0.005 * hidden.step_time_s);
  EXPECT_LE(exposed.step_time_s - hidden.step_time_s, 1.05 * more_s);

  // What may be hidden is never slower than what cannot be.
  for (const SoftwareStack& stack : BuiltinStacks()) {
    cluster.stack = stack;
    run.layout.overlap_param_gather = true;
    const double beside_s = DryRun(run, cluster).step_time_s;
    run.layout.overlap_param_gather = false;
    EXPECT_LE(beside_s, 1.001 * DryRun(run, cluster).step_time_s) << stack.name;
  }
}

TEST(StackTiers, EachNumberSlowsTheStepDown) {
  const RunConfig run = RunOf("llama2-7b", "tp=2,sp=1,zero=1,precision=bf16,mbs=2,recompute=full");
  Cluster cluster = LoadCluster("2x8xh100");
  const auto step_s = [&] { return DryRun(run, cluster).step_time_s; };
  const double ours_s = step_s();
  const auto slower = [&](Quantity SoftwareStack::*number, double value) {
    cluster.stack = {};
    (cluster.stack.*number).value = value;
    return step_s() - ours_s;
  };
  EXPECT_GT(slower(&SoftwareStack::compute, 0.9), 0);
  EXPECT_GT(slower(&SoftwareStack::memory_traffic, 2), 0);
  EXPECT_GT(slower(&SoftwareStack::host_layer_s, 5e-3), 0);
  EXPECT_GT(slower(&SoftwareStack::dp_exposed, 0.5), 0);
  EXPECT_GT(slower(&SoftwareStack::slowdown, 0.2), 0);
  EXPECT_LT(slower(&SoftwareStack::recompute, 0.5), 0);
  EXPECT_LT(slower(&SoftwareStack::tp_exposed, 0.5), 0);
  EXPECT_NEAR(slower(&SoftwareStack::step_s, 0.1), 0.1, 1e-9);
}

}  // namespace
}  // namespace trimtab
