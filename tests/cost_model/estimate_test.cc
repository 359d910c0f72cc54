#include "cost_model/estimate.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "engine/config/run_config.h"

namespace trimtab {
namespace {

// GPT-3 175B, 1536 sequences of 2048 tokens. Narayanan et al. (arXiv:2104.04473, section 5.1) count
// 96 B s l h^2 (1 + s / (6 h) + V / (16 l h)) with recompute; without it three quarters of the
// layers' part, and the output projection whole.
TEST(ModelFlops, FollowsThePublishedFormula) {
  RunConfig run;
  run.model = LoadModelConfig("gpt3-175b");
  run.global_batch = 1536;
  run.sequence_length = 2048;
  const double b = 1536, s = 2048, l = 96, h = 12288;
  const auto v = static_cast<double>(run.model.vocab_size);
  const double expected = 72 * b * s * l * h * h * (1 + s / (6 * h) + v / (12 * l * h));
  EXPECT_NEAR(static_cast<double>(ModelFlops(run)), expected, 1e-9 * expected);
}

TEST(Estimate, RatesFollowFromTheStep) {
  Estimate estimate;
  estimate.step_time_s = 2;
  estimate.tokens = 8000;
  estimate.ranks = 4;
  estimate.model_flops = int64_t{16'000'000'000'000};
  EXPECT_DOUBLE_EQ(estimate.tokens_per_s(), 4000);
  EXPECT_DOUBLE_EQ(estimate.tokens_per_s_per_gpu(), 1000);
  EXPECT_DOUBLE_EQ(estimate.model_tflops_per_gpu(), 2);
  EXPECT_EQ(estimate.mfu(), 0) << "no peak, no utilisation";
  estimate.peak_flops_per_rank = 8e12;
  EXPECT_DOUBLE_EQ(estimate.mfu(), 0.25);
}

TEST(Estimate, JsonNamesTheConventionAndTheMessages) {
  Estimate estimate;
  estimate.step_time_s = 1;
  estimate.comm.at(CollectiveKind::kAllReduce, GroupKind::kTensor) = {3, 300};
  const nlohmann::json json = ToJson(estimate);
  EXPECT_NE(json["model_flops_convention"].get<std::string>().find("NVIDIA"), std::string::npos);
  ASSERT_EQ(json["messages"].size(), 1u);
  EXPECT_EQ(json["messages"][0]["collective"], "all_reduce");
  EXPECT_EQ(json["messages"][0]["bytes"], 300);
  EXPECT_TRUE(json["mfu"].is_null());
  EXPECT_EQ(json["trust"], "modelled");
}

}  // namespace
}  // namespace trimtab
