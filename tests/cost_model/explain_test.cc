#include "cost_model/explain.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "cost_model/dry_run/dry_run.h"
#include "cost_model/prices/price.h"

#include "engine/config/run/run_config.h"
#include "engine/families/load_config.h"

namespace trimtab {
namespace {

RunConfig RunOf(const std::string& model, const std::string& layout, int64_t ranks,
                int64_t global_batch) {
  RunConfig run;
  run.model = LoadModelConfig(model);
  run.layout = ParseLayout(layout, ranks);
  run.global_batch = global_batch;
  run.sequence_length = 1024;
  run.device = DeviceKind::kCuda;
  return run;
}

struct Case {
  const char* model;
  const char* cluster;
  const char* layout;
  int64_t ranks;
};

class ExplainLimits : public testing::TestWithParam<Case> {};

// Groups within the link, over the network with one and with several members of each node, and
// experts.
TEST_P(ExplainLimits, NothingIsFasterThanItsLimit) {
  const RunConfig run = RunOf(GetParam().model, GetParam().layout, GetParam().ranks, 64);
  Cluster cluster = LoadCluster(GetParam().cluster);
  for (const SoftwareStack& stack : BuiltinStacks()) {
    SCOPED_TRACE(stack.name);
    cluster.stack = stack;
    const std::vector<ExplainedPart> parts = ExplainStep(run, cluster);
    ASSERT_FALSE(parts.empty());
    for (const ExplainedPart& part : parts) {
      EXPECT_GT(part.light_s, 0) << part.what;
      EXPECT_LE(part.light_s, part.seconds * (1 + 1e-9)) << part.what;
    }
  }
}

const ExplainedPart& PartOf(const std::vector<ExplainedPart>& parts, const std::string& what) {
  const auto found = std::ranges::find(parts, what, &ExplainedPart::what);
  EXPECT_NE(found, parts.end()) << what;
  return *found;
}

// Of two ranks each sends the other half of the weights: 1.236e9 / 2 of 2 bytes at 450e9 B/s one
// way. Of gradients in fp32, reduced, the same number of 4 bytes.
TEST(Explain, ARankSendsWhatOthersDoNotHave) {
  const RunConfig run = RunOf("llama3.2-1b", "zero=1,precision=bf16", 2, 16);
  const std::vector<ExplainedPart> parts = ExplainStep(run, LoadCluster("2xh100"));
  const double gathered_s = static_cast<double>(run.model.parameter_count()) * 2 / 2 / 450e9;
  EXPECT_NEAR(PartOf(parts, "all_gather dp").light_s, gathered_s, 0.01 * gathered_s);
  EXPECT_NEAR(PartOf(parts, "reduce_scatter dp").light_s, 2 * gathered_s, 0.02 * gathered_s);
}

// What a stack does otherwise than our engine counts here as it does in a step: products in fp8,
// what is not recomputed after all, messages between stages in parts.
TEST(Explain, TakesTheSecondsOfAStep) {
  const RunConfig run = RunOf("llama3.2-1b", "precision=bf16,recompute=full", 1, 2);
  const RunConfig piped = RunOf("llama3.2-1b", "tp=2,pp=2,precision=bf16,recompute=full", 4, 2);
  for (const SoftwareStack& stack : BuiltinStacks()) {
    SCOPED_TRACE(stack.name);
    Cluster cluster = LoadCluster("2x2xh100");
    cluster.stack = stack;
    double ops_s = 0;
    for (const ExplainedPart& part : ExplainStep(run, cluster)) ops_s += part.seconds;
    const Breakdown step = DryRun(run, cluster).breakdown_s;
    EXPECT_NEAR(ops_s, step.compute + step.recompute + step.optimizer, 1e-9 * ops_s);

    const ExplainedPart sent = PartOf(ExplainStep(piped, cluster), "send pp");
    const Pricer pricer = PricerOf(cluster, {}, Precision::kBf16, run.model.moe);
    const CommRecord activation = {CollectiveKind::kSend, GroupKind::kPipeline, 2,
                                   2 * 1024 * run.model.hidden_size};
    EXPECT_NEAR(sent.seconds / static_cast<double>(sent.count),
                pricer.BetweenStages(activation, piped.layout), 1e-9 * sent.seconds);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Cases, ExplainLimits,
    testing::Values(Case{"llama3.2-1b", "2xh100", "zero=1,precision=bf16", 2},
                    Case{"llama3.2-1b", "2x1xh100", "zero=3,precision=bf16", 2},
                    Case{"llama3.2-1b", "2xh100", "tp=2,precision=bf16", 2},
                    Case{"llama3.2-1b", "8xh100", "tp=8,sp=1,precision=bf16", 8},
                    Case{"llama3.2-1b", "2x4xa100", "tp=2,cp=2,zero=1,precision=bf16", 8},
                    Case{"mixtral-8x7b", "4x8xh100", "pp=2,ep=8,zero=1,precision=bf16,mbs=1", 32},
                    Case{"mixtral-8x7b", "2x72xgb200", "ep=8,zero=1,precision=bf16,mbs=1", 64}));

}  // namespace
}  // namespace trimtab
