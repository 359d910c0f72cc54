#include "cost_model/explain.h"

#include <gtest/gtest.h>

#include "engine/config/run_config.h"

namespace trimtab {
namespace {

struct Case {
  const char* model;
  const char* cluster;
  const char* layout;
  int64_t ranks;
};

class Explain : public testing::TestWithParam<Case> {};

// Groups within the link, over the network with one and with several members of each node, and
// experts.
TEST_P(Explain, NothingIsFasterThanItsLimit) {
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

INSTANTIATE_TEST_SUITE_P(
    Cases, Explain,
    testing::Values(Case{"llama3.2-1b", "2xh100", "zero=1,precision=bf16", 2},
                    Case{"llama3.2-1b", "2x1xh100", "zero=3,precision=bf16", 2},
                    Case{"llama3.2-1b", "2xh100", "tp=2,precision=bf16", 2},
                    Case{"llama3.2-1b", "8xh100", "tp=8,sp=1,precision=bf16", 8},
                    Case{"llama3.2-1b", "2x4xa100", "tp=2,cp=2,zero=1,precision=bf16", 8},
                    Case{"mixtral-8x7b", "4x8xh100", "pp=2,ep=8,zero=1,precision=bf16,mbs=1", 32},
                    Case{"mixtral-8x7b", "2x72xgb200", "ep=8,zero=1,precision=bf16,mbs=1", 64}));

}  // namespace
}  // namespace trimtab
