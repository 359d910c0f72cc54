// The brief dry run is the dry run: what it leaves out is what it has seen before.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "cost_model/closed_form/closed_form.h"
#include "cost_model/dry_run/dry_run.h"
#include "tests/cost_model/closed_form/spaces.h"

namespace trimtab {
namespace {

void ExpectTheSame(const RunConfig& run, const Cluster& cluster) {
  SCOPED_TRACE(Describe(run));
  ASSERT_EQ(FirstBrokenRule(run), nullptr);
  ClosedFormEstimator estimator(run.model, run.sequence_length, cluster);
  const Estimate brief = BriefDryRun(run, cluster, estimator.Stages(run));
  const Estimate whole = DryRun(run, cluster);
  EXPECT_NEAR(brief.step_time_s, whole.step_time_s, 1e-9 * whole.step_time_s);
  for (const BreakdownPart& part : kBreakdownParts) {
    EXPECT_NEAR(brief.breakdown_s.*part.seconds, whole.breakdown_s.*part.seconds,
                1e-9 * whole.step_time_s)
        << part.key;
  }
  EXPECT_EQ(brief.hardware_flops, whole.hardware_flops);
  EXPECT_EQ(brief.op_count, whole.op_count);
  EXPECT_EQ(brief.comm, whole.comm);
  EXPECT_EQ(brief.memory, whole.memory);
}

struct Case {
  const char* name;
  const char* layout;
  int64_t micro_batches;
};

// Pipelines long enough that most micro batches find them full, with one micro batch more or less
// than some multiple of the stages where the schedule takes any number.
constexpr Case kCases[] = {
    {"one_rank", "mbs=2", 9},
    {"one_micro_batch", "dp=2,mbs=1", 1},
    {"two_micro_batches", "dp=2,mbs=1,zero=1", 2},
    {"replicas", "tp=2,sp=1,dp=2,mbs=1,zero=2", 7},
    {"weights_beside_passes", "dp=2,mbs=1,zero=1,overlap_param_gather=1", 5},
    {"sharded", "dp=4,mbs=1,zero=3,shard=2", 6},
    {"ring", "cp=4,dp=2,mbs=1", 5},
    {"gathered", "cp=4,dp=2,mbs=1,cp_comm_type=all_gather", 5},
    {"pipeline", "pp=3,dp=2,mbs=1,zero=1", 29},
    {"uneven", "pp=3,mbs=1,stages=4+5+3", 17},
    {"plan_of_each_stage", "pp=3,mbs=1,recompute=full/full:block:2/none", 17},
    {"whole_chunks", "pp=4,mbs=1,recompute=full:uniform:2", 23},
    {"sharded_pipeline", "pp=2,dp=2,mbs=1,zero=3", 13},
    {"all_forwards_first", "pp=3,mbs=1,schedule=gpipe", 11},
    {"zero_bubble", "pp=4,dp=2,mbs=1,zero=2,schedule=zero-bubble", 25},
    {"interleaved", "pp=2,vp=3,dp=2,mbs=1,zero=1,schedule=interleaved-1f1b", 24},
    {"interleaved_far", "pp=4,vp=3,dp=2,mbs=1,zero=2,schedule=interleaved-1f1b", 48},
    {"interleaved_once", "pp=4,vp=3,mbs=1,schedule=interleaved-1f1b", 4},
    {"many_chunks", "pp=3,vp=4,mbs=1,schedule=interleaved-1f1b", 36},
    {"many_stages", "pp=12,mbs=1", 61},
};

RunConfig RunOf(const Case& each, ModelConfig model, DeviceKind device) {
  model.num_layers = 12;
  RunConfig run;
  run.model = model;
  run.device = device;
  run.sequence_length = 16;
  run.layout = ParseLayout(each.layout, 0);
  run.global_batch = each.micro_batches * run.layout.micro_batch * run.layout.dp;
  run.steps = 10;
  run.threads_per_rank = 1;
  return run;
}

void PrintTo(const Case& each, std::ostream* out) { *out << each.name; }

class BriefDryRunTest : public testing::TestWithParam<Case> {};

TEST_P(BriefDryRunTest, OnGpus) {
  RunConfig run = RunOf(GetParam(), TinyLlama(), DeviceKind::kCuda);
  run.layout.numerics.precision = Precision::kBf16;
  ExpectTheSame(run, LoadCluster("8x2xh200"));
}

TEST_P(BriefDryRunTest, InFp8) {
  RunConfig run = RunOf(GetParam(), TinyFp8Llama(), DeviceKind::kCuda);
  run.sequence_length = 128;  // cut over ranks it is a multiple of 16
  run.model.max_sequence_length = 128;
  run.layout.numerics.precision = Precision::kFp8;
  run.fp8.bf16_layers = {"decoder.layers.5"};
  for (const char* scaling : {"delayed", "current"}) {
    run.fp8.scaling = scaling;
    ExpectTheSame(run, LoadCluster("8x2xh200"));
  }
}

TEST_P(BriefDryRunTest, OnACpu) {
  ExpectTheSame(RunOf(GetParam(), TinyGpt2(), DeviceKind::kCpu), GenericCpu());
}

INSTANTIATE_TEST_SUITE_P(Layouts, BriefDryRunTest, testing::ValuesIn(kCases),
                         [](const auto& param) { return std::string(param.param.name); });

}  // namespace
}  // namespace trimtab
