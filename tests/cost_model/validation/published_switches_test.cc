#include "cost_model/validation/published_switches.h"

#include <gtest/gtest.h>

namespace trimtab {
namespace {

SoftwareStack Switched(const std::string& stack_name, const std::string& notes,
                       const std::string& framework = "") {
  PublishedRun run;
  run.notes = notes;
  run.framework = framework;
  SoftwareStack stack = LoadSoftwareStack(stack_name);
  ApplySwitches(run, stack);
  return stack;
}

TEST(PublishedSwitches, NothingToldChangesNothing) {
  for (const SoftwareStack& stack : BuiltinStacks()) {
    EXPECT_EQ(Switched(stack.name, "gradient accumulation 4; mock data"), stack) << stack.name;
  }
}

TEST(PublishedSwitches, ACompilerSavesTrafficAndLaunches) {
  const SoftwareStack compiled = LoadSoftwareStack("torchtitan");
  EXPECT_EQ(Switched("torchtitan", "torch.compile; FSDP2"), compiled) << "it is so anyway";
  const SoftwareStack eager = Switched("torchtitan", "no torch.compile; FSDP2");
  EXPECT_GT(eager.memory_traffic.value, compiled.memory_traffic.value);
  EXPECT_GT(eager.host_layer_s.value, compiled.host_layer_s.value);
  EXPECT_EQ(eager.compute, compiled.compute);

  // Software that fuses by hand gains nothing.
  EXPECT_EQ(Switched("trimtab", "torch.compile"), SoftwareStack());

  const SoftwareStack plain = LoadSoftwareStack("pytorch-fsdp");
  EXPECT_EQ(Switched("pytorch-fsdp", "no torch.compile"), plain);
  const SoftwareStack faster = Switched("pytorch-fsdp", "torch.compile; batch 2 per GPU");
  EXPECT_LT(faster.memory_traffic.value, plain.memory_traffic.value);
  EXPECT_LT(faster.host_layer_s.value, plain.host_layer_s.value);
  EXPECT_EQ(Switched("pytorch-fsdp", "", "OLMo-core (FSDP2, torch.compile)"), faster);
}

TEST(PublishedSwitches, SoftwareForExpertsSendsTokensOncePerNode) {
  const SoftwareStack plain = LoadSoftwareStack("megatron-bridge");
  EXPECT_FALSE(plain.tokens_once_per_node);
  const SoftwareStack deepep = Switched("megatron-bridge", "DeepEP");
  EXPECT_TRUE(deepep.tokens_once_per_node);
  EXPECT_EQ(deepep.ep_exposed, plain.ep_exposed);
  PublishedRun run;
  run.framework = "HAI-LLM";
  run.layout.schedule = "DualPipe";
  SoftwareStack overlapped = plain;
  ApplySwitches(run, overlapped);
  EXPECT_TRUE(overlapped.tokens_once_per_node);
  EXPECT_LT(overlapped.ep_exposed.value, plain.ep_exposed.value);
}

TEST(PublishedSwitches, MessagesBesideProductsAreLessExposed) {
  const SoftwareStack plain = LoadSoftwareStack("torchtitan");
  const SoftwareStack overlapped = Switched("torchtitan", "torch.compile; FSDP2 + async TP");
  EXPECT_LT(overlapped.tp_exposed.value, plain.tp_exposed.value);
  EXPECT_EQ(overlapped.dp_exposed, plain.dp_exposed);
}

TEST(PublishedSwitches, ScalesByRowsSlowProductsIn8Bits) {
  const SoftwareStack rows = Switched("torchtitan", "torch.compile; fp8-rowwise");
  EXPECT_LT(rows.fp8_compute.value, 1);
  EXPECT_EQ(rows.compute, LoadSoftwareStack("torchtitan").compute);
  EXPECT_EQ(Switched("torchtitan", "torch.compile; fp8-tensorwise").fp8_compute.value, 1);
}

// Llama 3 8B in products per hidden unit: 4096 q, 1024 k, 1024 v, 4096 o, 14336 w1, w3 and w2; kept
// are q, v, w1, w2 and the 4096 that attention returns, and nobody asks for w2's again. Attention
// over 8192 tokens is as 8192 / 4096 x 4096 of them.
TEST(PublishedSwitches, EveryOtherProductRunsAgain) {
  PublishedRun run;
  run.model = {.name = "Llama-3.1-8B",
               .hidden = 4096,
               .heads = 32,
               .kv_heads = 8,
               .head_dim = 128,
               .ffn = 14336,
               .ffn_kind = "swiglu",
               .sequence = 8192};
  run.recompute = "selective";
  const SoftwareStack plain = LoadSoftwareStack("torchtitan");
  SoftwareStack stack = plain;
  ApplySwitches(run, stack);
  EXPECT_EQ(stack, plain);
  run.recompute_detail = "per-op selective activation checkpointing";
  ApplySwitches(run, stack);
  constexpr double kAgain = 1024 + 4096 + 14336;
  constexpr double kLayer = 2 * 4096 + 2 * 1024 + 3 * 14336 + 8192;
  constexpr double kKept = 4096 + 1024 + 4096 + 14336;
  EXPECT_NEAR(stack.recompute.value, kAgain / kLayer, 1e-12);
  EXPECT_EQ(stack.kept_bytes.value, 2 * kKept);
  run.layout.tp = 8;  // what is reduced is kept: nobody asks for o again
  ApplySwitches(run, stack);
  EXPECT_NEAR(stack.recompute.value, (kAgain - 4096) / kLayer, 1e-12);
  EXPECT_EQ(stack.kept_bytes.value, 2 * (kKept + 4096) / 8);

  // Without a compiler what is on the list is kept, whoever asks for it.
  run.notes = "no torch.compile";
  run.layout.tp = 1;
  ApplySwitches(run, stack);
  EXPECT_EQ(stack.kept_bytes.value, 2 * (kKept + 4096));
}

}  // namespace
}  // namespace trimtab
