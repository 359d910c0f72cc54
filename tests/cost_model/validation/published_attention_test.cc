#include "cost_model/validation/published_attention.h"

#include <gtest/gtest.h>

namespace trimtab {
namespace {

std::optional<AttentionSpan> Span(const std::string& words, int64_t sequence = 4096) {
  PublishedRun run;
  run.model.attention = words;
  run.model.sequence = sequence;
  return SpanOf(run);
}

TEST(PublishedAttention, ManyWordsMeanPlainAttention) {
  for (const char* words : {"", "GQA", "MHA", "multi-head", "grouped-query attention",
                            "full causal", "FlashAttention", "Full"}) {
    const std::optional<AttentionSpan> span = Span(words);
    ASSERT_TRUE(span.has_value()) << words;
    EXPECT_EQ(span->window, 0) << words;
  }
  EXPECT_FALSE(Span("linear").has_value());
  EXPECT_FALSE(Span("MLA").has_value()) << "without its ranks";
}

TEST(PublishedAttention, AWindowIsOneOnlyWhereItIsShorterThanTheSequence) {
  EXPECT_EQ(Span("sliding window 1024")->window, 1024);
  EXPECT_EQ(Span("sliding window 1024")->period, 0);
  EXPECT_EQ(Span("sliding window 4096")->window, 0);
  const std::optional<AttentionSpan> gpt_oss =
      Span("alternating sliding window 128 / full, learned sinks");
  EXPECT_EQ(gpt_oss->window, 128);
  EXPECT_EQ(gpt_oss->period, 2);
  EXPECT_FALSE(Span("sliding window").has_value()) << "of which length is not told";
  EXPECT_FALSE(Span("sliding window 1024 in 5 of 6 layers").has_value());
}

AttentionKernel KernelOf(const char* stack_name, const char* notes, double release) {
  PublishedRun run;
  run.notes = notes;
  SoftwareStack stack = LoadSoftwareStack(stack_name);
  const AttentionKernel usual = stack.attention_kernel;
  const std::string said = ApplyKernel(run, release, stack);
  EXPECT_EQ(said.empty(), stack.attention_kernel == usual) << notes;
  return stack.attention_kernel;
}

TEST(PublishedAttention, ARowNamesItsKernel) {
  const auto of = [](const char* notes) { return KernelOf("megatron-2024", notes, 2024.5); };
  EXPECT_EQ(of("mock data"), AttentionKernel::kCudnn);
  EXPECT_EQ(of("flash attention"), AttentionKernel::kCudnn) << "some fused kernel";
  EXPECT_EQ(of("FlashAttention-2.3"), AttentionKernel::kFlash2);
  EXPECT_EQ(of("flash-attn 2"), AttentionKernel::kFlash2);
  EXPECT_EQ(of("no flash attention"), AttentionKernel::kUnfused);
  EXPECT_EQ(of("trained without Flash-Attention"), AttentionKernel::kUnfused);
  EXPECT_EQ(of("eager attention"), AttentionKernel::kUnfused);
  EXPECT_EQ(of("eager mode, flash storage"), AttentionKernel::kCudnn) << "nothing of attention";
  EXPECT_EQ(KernelOf("pytorch-fsdp", "cuDNN attention", 2024.5), AttentionKernel::kCudnn);
  EXPECT_EQ(KernelOf("pytorch-fsdp", "FlashAttention-3", 2024.5), AttentionKernel::kCudnn);
  EXPECT_EQ(KernelOf("megatron-deepspeed", "SDPA", 2024.5), AttentionKernel::kFlash2);
}

TEST(PublishedAttention, SoftwareBeforePyTorch2HasNoFusedKernelUnlessItSaysSo) {
  EXPECT_EQ(KernelOf("pytorch-fsdp", "", 2022.5), AttentionKernel::kUnfused);
  EXPECT_EQ(KernelOf("pytorch-fsdp", "xformers", 2022.5), AttentionKernel::kFlash2);
  EXPECT_EQ(KernelOf("pytorch-fsdp", "", 2023.5), AttentionKernel::kFlash2);
  EXPECT_EQ(KernelOf("nemo", "", 2023.1), AttentionKernel::kCudnn) << "which brings its own";
}

TEST(PublishedAttention, TheFirstFlashAttentionIsHalfAsFast) {
  const auto speed = [](double release) {
    PublishedRun run;
    run.framework = "GPT-NeoX, flash attention";
    SoftwareStack stack = LoadSoftwareStack("megatron-deepspeed");
    ApplyKernel(run, release, stack);
    return stack.attention.value;
  };
  EXPECT_EQ(speed(2022.5), 0.5 * speed(2023.5));
}

}  // namespace
}  // namespace trimtab
