#include "profiler/fp8_scan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "engine/base/error.h"
#include "engine/families/load_config.h"

namespace trimtab {
namespace {

RunConfig Fp8Run() {
  RunConfig run;
  run.model.name = "tiny";
  run.model.vocab_size = 128;
  run.model.hidden_size = 64;
  run.model.num_layers = 2;
  run.model.num_heads = 2;
  run.model.num_kv_heads = 2;
  run.model.ffn_hidden_size = 128;
  run.model.max_sequence_length = 32;
  run.model.norm = NormKind::kRmsNorm;
  run.model.activation = ActivationKind::kSwiGlu;
  run.model.position = PositionKind::kRope;
  run.model.bias = false;
  run.model.init_std = 0.1;
  run.global_batch = 4;
  run.sequence_length = 32;
  run.threads_per_rank = 1;
  run.layout.numerics.precision = Precision::kFp8;
  run.layout.micro_batch = 2;
  return run;
}

TEST(Fp8Scan, FindsEveryLinearLayerAndWhatRoundingAloneDoes) {
  for (const char* scaling : {"delayed", "current"}) {
    RunConfig run = Fp8Run();
    run.fp8.scaling = scaling;
    const Fp8Scan scan = ScanFp8(run, {.steps = 2});
    ASSERT_EQ(scan.layers.size(), 8u);
    EXPECT_EQ(scan.layers[0].name, "decoder.layers.0.self_attention.linear_qkv");
    EXPECT_EQ(scan.layers[7].name, "decoder.layers.1.mlp.linear_fc2");
    for (const Fp8LayerErrors& each : scan.layers) {
      SCOPED_TRACE(std::string(scaling) + " " + each.name);
      // Three bits of mantissa round by at most 1/16, two by 1/8; on average by less than half.
      for (const double error : {each.input, each.weight}) {
        EXPECT_GT(error, 0.01);
        EXPECT_LT(error, 1.0 / 16);
      }
      EXPECT_GT(each.gradient, each.input);
      EXPECT_LT(each.gradient, 1.0 / 8);
      EXPECT_GT(each.output, 0.01);
      EXPECT_LT(each.output, 0.1);
      EXPECT_GT(each.input_gradient, 0.01);
      EXPECT_LT(each.input_gradient, 0.15);
    }
  }
}

TEST(Fp8Scan, ProposesTheLayersPastTheThreshold) {
  const Fp8Scan loose = ScanFp8(Fp8Run(), {.steps = 1, .threshold = 1});
  EXPECT_TRUE(loose.proposed.bf16_layers.empty());
  std::vector<double> worst;
  for (const Fp8LayerErrors& each : loose.layers) worst.push_back(each.worst_product());
  std::sort(worst.begin(), worst.end());
  const double threshold = (worst[4] + worst[5]) / 2;
  const Fp8Scan scan = ScanFp8(Fp8Run(), {.steps = 1, .threshold = threshold});
  EXPECT_EQ(scan.proposed.bf16_layers.size(), 3u);

  // What is proposed can be run, and pasted into RUN.json.
  nlohmann::json run = ToJson(Fp8Run());
  const nlohmann::json json = ToJson(scan);
  run["fp8"] = json.at("fp8");
  EXPECT_EQ(RunConfigFromJson(run, "run").fp8, scan.proposed);
  int64_t proposed = 0;
  for (const nlohmann::json& layer : json.at("layers")) {
    proposed += layer.at("proposed") == "bf16" ? 1 : 0;
  }
  EXPECT_EQ(proposed, 3);
}

// The scan trains in bf16: what the run keeps in bf16 changes nothing of what is seen.
TEST(Fp8Scan, ScansLayersThatTheRunKeepsInBf16) {
  RunConfig kept = Fp8Run();
  kept.fp8.bf16_layers = {"decoder.layers.0"};
  kept.layout.tp = 2;
  const Fp8Scan with = ScanFp8(kept, {.steps = 1});
  const Fp8Scan without = ScanFp8(Fp8Run(), {.steps = 1});
  ASSERT_EQ(with.layers.size(), without.layers.size());
  for (size_t i = 0; i < with.layers.size(); ++i) {
    EXPECT_EQ(with.layers[i].output, without.layers[i].output);
  }
}

// Delayed scales are those of the steps before: what grows faster than they follow is cut off.
TEST(Fp8Scan, SeesWhenScalesLagBehind) {
  RunConfig run = Fp8Run();
  run.optimizer.learning_rate = 0.3;  // weights and so activations grow from step to step
  run.optimizer.warmup_steps = 0;
  run.optimizer.clip_grad = 0;
  run.steps = 6;
  const auto worst = [&](const char* scaling) {
    run.fp8.scaling = scaling;
    run.fp8.history = 1;
    double error = 0;
    for (const Fp8LayerErrors& each : ScanFp8(run, {.steps = 3}).layers) {
      error = std::max(error, each.worst_product());
    }
    return error;
  };
  EXPECT_GT(worst("delayed"), 1.5 * worst("current")) << "values past the old scale saturate";
}

TEST(Fp8Scan, SeesTheExperts) {
  RunConfig run = Fp8Run();
  run.model.moe = {.num_experts = 4, .router_topk = 2, .ffn_hidden_size = 32};
  run.layout = ParseLayout("dp=2,ep=2,mbs=2,precision=fp8", 0);
  const Fp8Scan scan = ScanFp8(run, {.steps = 1});
  ASSERT_EQ(scan.layers.size(), 8u);
  EXPECT_EQ(scan.layers[2].name, "decoder.layers.0.mlp.experts.linear_fc1");
  for (const Fp8LayerErrors& each : scan.layers) {
    SCOPED_TRACE(each.name);
    EXPECT_GT(each.output, 0.01);
    EXPECT_LT(each.output, 0.1);
  }
}

TEST(Fp8Scan, RefusesAModelThatFp8CannotRun) {
  RunConfig run = Fp8Run();
  run.model.ffn_hidden_size = 100;
  EXPECT_THROW(ScanFp8(run, {}), InfeasibleError);
}

}  // namespace
}  // namespace trimtab
