#include "cost_model/explain.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "engine/config/run_config.h"

namespace trimtab {
namespace {

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
  RunConfig run;
  run.model = LoadModelConfig(GetParam().model);
  run.layout = ParseLayout(GetParam().layout, GetParam().ranks);
  run.global_batch = 64;
  run.sequence_length = 1024;
  run.device = "cuda";
  const std::vector<ExplainedPart> parts = ExplainStep(run, LoadCluster(GetParam().cluster));
  ASSERT_FALSE(parts.empty());
  for (const ExplainedPart& part : parts) {
    EXPECT_GT(part.light_s, 0) << part.what;
    EXPECT_LE(part.light_s, part.seconds * (1 + 1e-9)) << part.what;
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
  RunConfig run;
  run.model = LoadModelConfig("llama3.2-1b");
  run.layout = ParseLayout("zero=1,precision=bf16", 2);
  run.global_batch = 16;
  run.sequence_length = 1024;
  run.device = "cuda";
  const std::vector<ExplainedPart> parts = ExplainStep(run, LoadCluster("2xh100"));
  const double gathered_s = static_cast<double>(run.model.parameter_count()) * 2 / 2 / 450e9;
  EXPECT_NEAR(PartOf(parts, "all_gather dp").light_s, gathered_s, 0.01 * gathered_s);
  EXPECT_NEAR(PartOf(parts, "reduce_scatter dp").light_s, 2 * gathered_s, 0.02 * gathered_s);
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
