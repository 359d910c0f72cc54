#include "cost_model/validation/published_flops.h"

#include <gtest/gtest.h>

namespace trimtab {
namespace {

/// Qwen3-235B over 256 GPUs: 94 layers whose tokens take 8 experts.
PublishedRun Qwen(const std::string& source, int64_t sequence) {
  PublishedRun run;
  run.source = source;
  run.model = {.name = "Qwen3-235B-A22B",
               .layers = 94,
               .hidden = 4096,
               .heads = 64,
               .kv_heads = 4,
               .head_dim = 128,
               .ffn = 12288,
               .ffn_kind = "swiglu",
               .vocab = 151936,
               .sequence = sequence,
               .experts = 128,
               .topk = 8,
               .moe_ffn = 1536};
  run.hardware.gpus = 256;
  run.micro_batch = 4;
  run.global_batch = 2048;
  run.recompute = "none";
  run.precision = "bf16";
  return run;
}

TEST(PublishedFlops, CountAttentionAsAsked) {
  const PublishedRun run = Qwen("a", 4096);
  // By hand: 4 products of 4096 x (8192 + 512) in attention, 8 experts of 3 x 4096 x 1536, 94
  // times, and the logits; attention's two products of 8192 columns over the sequence.
  const double weights = 94.0 * (4096.0 * 2 * (8192 + 512) + 8 * 3 * 4096.0 * 1536);
  const double attention = 94 * 4.0 * 8192 * 4096;
  const double logits = 4096.0 * 151936;
  const double full = 6 * (weights + logits) + 3 * attention;
  EXPECT_NEAR(FlopsPerToken(run, false, false) / full, 1, 1e-12);
  EXPECT_NEAR(FlopsPerToken(run, true, false) / (full - 1.5 * attention), 1, 1e-12);
}

TEST(PublishedFlops, TakeWhatIsNotToldFromTheModel) {
  const auto rate = [](const PublishedRun& run) { return run.TokensPerSecondPerGpu(1e15); };
  PublishedRun told = Qwen("a", 4096);
  told.model.head_dim = told.model.hidden / told.model.heads;
  told.model.kv_heads = told.model.heads;
  told.model.ffn = told.model.moe_ffn;
  told.measured.tflops_per_gpu = 300;
  PublishedRun untold = told;
  untold.model.head_dim = untold.model.kv_heads = untold.model.moe_ffn = 0;
  EXPECT_EQ(rate(untold), rate(told));
  untold.model.ffn_kind = "";
  untold.model.activation = "GeGLU";
  EXPECT_EQ(rate(untold), rate(told)) << "three matrices";
}

TEST(PublishedFlops, OfHardwareCountWhatRunsAgain) {
  const auto rate = [](PublishedRun run, const char* recompute, int64_t layers) {
    run.measured.hardware_flops = true;
    run.recompute = recompute;
    run.recompute_layers = layers;
    return run.TokensPerSecondPerGpu(1e15);
  };
  PublishedRun run = Qwen("a", 4096);
  run.measured.tflops_per_gpu = 300;
  const double none = rate(run, "none", 0);
  const double full = rate(run, "full", 0);
  EXPECT_EQ(rate(run, "block", run.model.layers), full);
  EXPECT_NEAR(1 / rate(run, "block", run.model.layers / 2), (1 / none + 1 / full) / 2, 1e-9 / none);
  PublishedRun only_hfu = Qwen("a", 4096);
  only_hfu.recompute = "full";
  only_hfu.measured.hfu = 0.3;
  EXPECT_NEAR(only_hfu.TokensPerSecondPerGpu(1e15) / full, 1, 1e-12);
}

// The published rows of one source: 276 TFLOP/s and 17.6 s, which agree if attention is causal.
TEST(PublishedFlops, ASourceSaysItselfHowItCounts) {
  PublishedRun both = Qwen("a", 4096);
  both.measured.tflops_per_gpu = 276;
  both.measured.step_time_s = 17.6;
  PublishedRun alone = Qwen("a", 131072);
  alone.measured.tflops_per_gpu = 1150;
  PublishedRun other = Qwen("b", 131072);
  other.measured.tflops_per_gpu = 1150;
  PublishedRun told = alone;
  told.measured.causal_attention = false;
  std::vector<PublishedRun> runs = {alone, both, other, told};
  FindAttentionConventions(runs);
  EXPECT_EQ(runs[0].measured.causal_attention, true);
  EXPECT_EQ(runs[2].measured.causal_attention, std::nullopt) << "of another source";
  EXPECT_EQ(runs[3].measured.causal_attention, false) << "what is told stands";
  EXPECT_NEAR(runs[0].TokensPerSecondPerGpu(1), 1150e12 / FlopsPerToken(alone, true, false), 1e-6);
  EXPECT_NEAR(runs[2].TokensPerSecondPerGpu(1), 1150e12 / FlopsPerToken(alone, false, false), 1e-6);

  both.measured.tflops_per_gpu = 311;  // by the whole square
  runs = {alone, both};
  FindAttentionConventions(runs);
  EXPECT_EQ(runs[0].measured.causal_attention, false);
}

}  // namespace
}  // namespace trimtab
