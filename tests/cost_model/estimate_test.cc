#include "cost_model/estimate.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "cost_model/finish.h"
#include "engine/config/layout/parallel_config.h"
#include "engine/config/run/run_config.h"
#include "engine/families/load_config.h"

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
  EXPECT_NEAR(ModelFlops(run), expected, 1e-9 * expected);
}

// Llama 3 405B on 16,384 GPUs: more FLOPs a step than a 64-bit integer holds. 6 per weight and
// token but for the look-up of tokens, and the attention of 126 layers of 16384 columns.
TEST(ModelFlops, HoldsAStepOfALargeCluster) {
  RunConfig run;
  run.model = LoadModelConfig("llama3-405b");
  run.global_batch = 2048;
  run.sequence_length = 8192;
  const double weights = 405.85e9 - 128256.0 * 16384;
  const double expected = 2048.0 * 8192 * (6 * weights + 12.0 * 126 * 16384 * 8192);
  EXPECT_NEAR(ModelFlops(run), expected, 1e-3 * expected);
}

TEST(MemoryEstimate, NamesAllOfThePeak) {
  MemoryEstimate memory = {.weights = 1, .gradients = 2, .optimizer = 3, .activations = 4};
  memory.peak_total = 17;
  EXPECT_EQ(memory.other(), 7);
  memory.peak_total = 9;  // of software that keeps less than ours
  EXPECT_EQ(memory.other(), 0);
}

// What a window hides is no work: every other layer of 16 sees 1,024 of 8,192 keys.
TEST(ModelFlops, CountWhatAWindowShows) {
  RunConfig run;
  run.model = LoadModelConfig("llama3.2-1b");
  run.global_batch = 1;
  run.sequence_length = 8192;
  const double whole = ModelFlops(run);
  run.model.sliding_window = 8192;
  EXPECT_EQ(ModelFlops(run), whole) << "a window as long as the sequence";
  run.model.sliding_window = 1024;
  run.model.full_attention_period = 2;
  const double attention = 8192 * 12.0 * 16 * 2048 * 8192;
  const double share = (2 * 1024 - 1024.0 * 1024 / 8192) / 8192;
  const double expected = whole - attention / 2 * (1 - share);
  EXPECT_NEAR(ModelFlops(run), expected, 1e-9 * expected);
}

// Of the experts, those that a token goes to: Mixtral 8x7B has 12.88e9 weights for each token, of
// which the look-up of the token is no product.
TEST(ModelFlops, CountActiveExperts) {
  RunConfig run;
  run.model = LoadModelConfig("llama2-7b");
  run.model.num_kv_heads = 8;
  run.model.moe = {.num_experts = 8, .router_topk = 2, .ffn_hidden_size = 14336};
  run.global_batch = 1;
  run.sequence_length = 4096;
  const double norms = 65.0 * 4096;
  const double weights = 12'879'925'248.0 - 32000.0 * 4096 - norms;
  const double expected = 4096 * (6 * weights + 12.0 * 32 * 4096 * 4096);
  EXPECT_NEAR(ModelFlops(run), expected, 1e-9 * expected);
}

TEST(Estimate, RatesFollowFromTheStep) {
  Estimate estimate;
  estimate.step_time_s = 2;
  estimate.tokens = 8000;
  estimate.ranks = 4;
  estimate.model_flops = 16e12;
  EXPECT_DOUBLE_EQ(estimate.tokens_per_s(), 4000);
  EXPECT_DOUBLE_EQ(estimate.tokens_per_s_per_gpu(), 1000);
  EXPECT_DOUBLE_EQ(estimate.model_tflops_per_gpu(), 2);
  EXPECT_EQ(estimate.mfu(), 0) << "no peak, no utilisation";
  estimate.peak_flops_per_rank = 8e12;
  EXPECT_DOUBLE_EQ(estimate.mfu(), 0.25);
}

/// The estimate of a step on this machine, calibrated with tables of `spread`.
Estimate FinishedWith(double spread) {
  HardwareProfile profile = BuiltinProfile("cpu");
  profile.measured_on = DescribeThisMachine() + ", 2026-11-22";
  ModeTables& tables = profile.modes.emplace_back();
  tables.mode = {1, 1};
  if (spread > 0) tables.spread["gemm"] = spread;
  const Cluster cluster = LocalMachine(profile);
  RunConfig run;
  run.model = LoadModelConfig("gpt2-10m");
  run.threads_per_rank = 1;
  Estimate estimate;
  estimate.breakdown_s.compute = 2;
  FinishEstimate(run, cluster, Pricer(profile, {1, 1}, 1, 1), estimate);
  return estimate;
}

TEST(Estimate, TheIntervalHoldsWhatTheTablesMayBeOffBy) {
  const Estimate known = FinishedWith(0);
  EXPECT_EQ(known.trust, Trust::kCalibrated);
  EXPECT_DOUBLE_EQ(known.step_time_high_s, 2.5) << "the model's own error";
  const Estimate rough = FinishedWith(0.1);
  EXPECT_DOUBLE_EQ(rough.step_time_s, known.step_time_s);
  const double half_width = std::hypot(0.25, 2 * 0.1);
  EXPECT_NEAR(rough.step_time_high_s, 2 * (1 + half_width), 1e-12);
  EXPECT_NEAR(rough.step_time_low_s, 2 / (1 + half_width), 1e-12);
}

TEST(Estimate, IntervalsAreWiderWhereLessIsKnown) {
  RunConfig run;
  Breakdown busy;
  busy.compute = 0.9;
  busy.exposed_tp = 0.1;
  Breakdown waiting = busy;
  waiting.bubble = 1;
  using enum Evidence;
  for (const Breakdown& parts : {busy, waiting}) {
    EXPECT_LT(GpuHalfWidth(run, parts, kFitted), GpuHalfWidth(run, parts, kPartly));
    EXPECT_LT(GpuHalfWidth(run, parts, kPartly), GpuHalfWidth(run, parts, kNoStack));
  }
  EXPECT_LT(GpuHalfWidth(run, busy, kFitted), GpuHalfWidth(run, waiting, kFitted));
  run.model.moe.num_experts = 8;
  EXPECT_GT(GpuHalfWidth(run, busy, kFitted), GpuHalfWidth(RunConfig(), waiting, kPartly));
}

/// Bytes of the fullest rank that a stack adds, of 1,000 of activations and 400 of fp32 gradients.
int64_t BytesBeyondOurs(const SoftwareStack& stack, const std::string& layout) {
  RunConfig run;
  run.model = LoadModelConfig("gpt2-10m");
  run.sequence_length = 16;
  run.layout = ParseLayout(layout, 0);
  run.global_batch = run.layout.dp * run.layout.micro_batch;
  Cluster cluster = LoadCluster("8xh100");
  cluster.stack = stack;
  Estimate estimate;
  estimate.breakdown_s.compute = 1;
  estimate.memory.activations = 1000;
  estimate.memory.gradients = 400;
  FinishEstimate(run, cluster,
                 Pricer(cluster.profile, {1, 1}, 8, 0, run.layout.numerics.precision, stack),
                 estimate);
  return estimate.memory.peak_total;
}

TEST(Estimate, AStackKeepsWhatItSaysBeyondOurs) {
  EXPECT_EQ(BytesBeyondOurs({}, "precision=bf16"), 0);
  EXPECT_EQ(BytesBeyondOurs({.activations = {.value = 1.5}}, "precision=bf16"), 500);
  EXPECT_EQ(BytesBeyondOurs({.memory_bytes = {.value = 7}}, "precision=bf16"), 7);
  // 100 parameters with 2 bytes each.
  EXPECT_EQ(BytesBeyondOurs({.keeps_16_bit_gradients = true}, "precision=bf16"), 200);
  EXPECT_EQ(BytesBeyondOurs({.fp8_weights = true}, "precision=bf16"), 0);
  EXPECT_EQ(BytesBeyondOurs({.fp8_weights = true}, "precision=fp8"), -200);
  // 3 bytes of each of 16 tokens in each layer that runs again, of as many micro batches at once
  // as the first stage holds: one without a pipeline.
  const SoftwareStack keeps = {.kept_bytes = {.value = 3}};
  const int64_t layers = LoadModelConfig("gpt2-10m").num_layers;
  EXPECT_EQ(BytesBeyondOurs(keeps, "precision=bf16"), 0);
  EXPECT_EQ(BytesBeyondOurs(keeps, "precision=bf16,recompute=full"), 3 * 16 * layers);
  EXPECT_EQ(BytesBeyondOurs(keeps, "precision=bf16,mbs=2,recompute=full:block:2"), 3 * 32 * 2);
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
