#include "cost_model/validation/published_case.h"

#include <gtest/gtest.h>

#include "cost_model/validation/predictor.h"
#include "engine/config/rules/rules.h"

namespace trimtab {
namespace {

PublishedRun Llama70B() {
  PublishedRun run;
  run.id = "llama";
  run.source = "dgxc";
  run.framework = "NeMo 24.12";
  run.year = 2025;
  run.model = {.name = "Llama-3.1-70B",
               .layers = 80,
               .hidden = 8192,
               .heads = 64,
               .kv_heads = 8,
               .head_dim = 128,
               .ffn = 28672,
               .ffn_kind = "swiglu",
               .vocab = 128256,
               .sequence = 8192};
  run.hardware = {.gpu = "H100-SXM", .gpus = 64, .gpus_per_node = 8, .network_gbit_per_s = 400};
  run.layout = {
      .tp = 4, .pp = 4, .vp = 5, .cp = 2, .dp = 2, .sequence_parallel = true, .zero_stage = 1};
  run.micro_batch = 1;
  run.global_batch = 128;
  run.recompute = "none";
  run.precision = "bf16";
  run.measured.step_time_s = 14.66;
  return run;
}

TEST(PublishedCase, IsTheSameRunOfOurEngine) {
  const PublishedCase result = CaseOf(Llama70B());
  ASSERT_EQ(result.refusal, "");
  EXPECT_EQ(FirstBrokenRule(result.run), nullptr);
  EXPECT_EQ(ToString(result.run.layout),
            "tp=4,sp=1,cp=2,pp=4,vp=5,dp=2,zero=1,overlap_param_gather=1,"
            "schedule=interleaved-1f1b,mbs=1,precision=bf16,grads=bf16");
  EXPECT_EQ(result.run.model.activation, ActivationKind::kSwiGlu);
  EXPECT_EQ(result.run.model.num_kv_heads, 8);
  EXPECT_EQ(result.cluster.stack.name, "nemo");
  EXPECT_EQ(result.cluster.nodes, 8);
  EXPECT_EQ(result.cluster.profile.name, "h100-sxm");
  EXPECT_EQ(result.cluster.profile.network_bandwidth.value, 50e9);
}

TEST(PublishedCase, SaysWhyItCannotBe) {
  PublishedRun run = Llama70B();
  run.hardware.gpu = "TPU v5p";
  EXPECT_EQ(CaseOf(run).refusal, "no profile of the GPU TPU v5p");
  run.hardware.gpu = "";
  EXPECT_EQ(CaseOf(run).refusal, "not told: hardware.gpu");
  run = Llama70B();
  run.layout.dp = 4;
  EXPECT_NE(CaseOf(run).refusal.find("64 GPUs"), std::string::npos);
  run = Llama70B();
  run.model.attention = "linear";
  EXPECT_EQ(CaseOf(run).refusal, "attention: linear");
  run = Llama70B();
  run.layout.tp = 3;
  run.hardware.gpus = 48;
  EXPECT_NE(CaseOf(run).refusal.find("heads-divisible-by-tp"), std::string::npos);
  run = Llama70B();
  run.blockers = {"activation offload"};
  EXPECT_EQ(CaseOf(run).refusal, "activation offload");
}

TEST(PublishedCase, MemoryTellsGpusOfOneNameApart) {
  PublishedRun run = Llama70B();
  run.hardware.gpu = "A100";
  const auto profile = [&](double gigabytes) {
    run.hardware.memory_bytes = 1e9 * gigabytes;
    return CaseOf(run).cluster.profile.name;
  };
  EXPECT_EQ(profile(40), "a100-40gb");
  EXPECT_EQ(profile(80), "a100-80gb");
  EXPECT_EQ(profile(0), "a100-80gb");
  EXPECT_EQ(profile(79), "a100-80gb") << "which nobody calls so";
}

TEST(PublishedCase, GpusWithoutBf16RunInFp16) {
  PublishedRun run = Llama70B();
  run.precision = "fp16";
  run.hardware.gpu = "V100-SXM2";
  run.hardware.memory_bytes = 32e9;
  const TakenRuns taken = TakeRuns({run});
  ASSERT_EQ(taken.rows.size(), 1u);
  const PublishedCase& result = taken.rows[0].of;
  EXPECT_EQ(result.cluster.profile.name, "v100-32gb");
  EXPECT_EQ(result.cluster.profile.peak_flops.at("bf16").value, 125e12) << "that of fp16";
  EXPECT_EQ(result.run.layout.numerics.gradients, DType::kBf16) << "2 bytes, as the stack has them";
  EXPECT_GT(RunPredictor().Predict(taken.rows[0], Tier::kClosedForm).step_time_s, 14.66);
  run.precision = "bf16";
  const TakenRuns none = TakeRuns({run});
  ASSERT_EQ(none.skipped.size(), 1u);
  EXPECT_NE(none.skipped[0].second.find("no rate of bf16"), std::string::npos);
}

TEST(PublishedCase, TakesWindowsOfAttention) {
  PublishedRun run = Llama70B();
  run.model.attention = "sliding window 4096";
  EXPECT_EQ(CaseOf(run).refusal, "");
  EXPECT_EQ(CaseOf(run).run.model.sliding_window, 4096);
  run.model.attention = "sliding window 8192";
  EXPECT_EQ(CaseOf(run).run.model.sliding_window, 0);
}

TEST(PublishedCase, TakesLatentAttention) {
  PublishedRun run = Llama70B();
  run.model.attention = "MLA";
  run.model.kv_heads = run.model.heads;
  run.model.kv_lora_rank = 512;
  run.model.qk_head_dim = 128;
  run.model.qk_rope_head_dim = 64;
  run.model.v_head_dim = 128;
  const PublishedCase result = CaseOf(run);
  EXPECT_EQ(result.refusal, "");
  EXPECT_EQ(result.run.model.head_size(), 192);
  EXPECT_EQ(result.run.model.latent.kv_lora_rank, 512);
}

TEST(PublishedCase, AStackDecidesWhatIsNotTold) {
  PublishedRun run = Llama70B();
  run.framework = "Megatron-LM 2022";
  EXPECT_EQ(CaseOf(run).cluster.stack.attention_kernel, AttentionKernel::kUnfused);
  EXPECT_FALSE(CaseOf(run).run.layout.overlap_grad_reduce);
  run.gradient_type = "fp32 (not sharded)";
  EXPECT_EQ(CaseOf(run).run.layout.numerics.gradients, DType::kF32);
  run.framework = "a new one";
  const PublishedCase unknown = CaseOf(run);
  EXPECT_EQ(unknown.cluster.stack.name, "usual-2025");
  EXPECT_EQ(unknown.run.layout.numerics.gradients, DType::kF32) << "what is told stands";
  ASSERT_FALSE(unknown.assumptions.empty());
  EXPECT_NE(unknown.assumptions.front().find("a new one"), std::string::npos);
}

TEST(PublishedCase, CountsRecomputedLayers) {
  PublishedRun run = Llama70B();
  run.recompute = "full";
  EXPECT_EQ(ToString(CaseOf(run).run.layout.recompute), "full");
  run.recompute = "block";
  run.recompute_layers = 3;
  EXPECT_EQ(ToString(CaseOf(run).run.layout.recompute), "full:block:3");
  run.recompute = "selective";
  run.recompute_modules = {"norm", "mlp_activation"};
  EXPECT_EQ(ToString(CaseOf(run).run.layout.recompute), "selective:layernorm+mlp_act");
  run.recompute_modules.clear();
  run.recompute_detail = "per-op selective activation checkpointing";
  EXPECT_EQ(ToString(CaseOf(run).run.layout.recompute), "full") << "of which the stack keeps some";
  run.recompute_detail.clear();
  EXPECT_EQ(ToString(CaseOf(run).run.layout.recompute), "selective:core_attn");
  run.recompute_detail = "every 2nd layer fully recomputed";
  EXPECT_EQ(ToString(CaseOf(run).run.layout.recompute), "full:block:2");
}

// Megatron-Core's "mlp" is that of dense layers, of which such models have few or none.
TEST(PublishedCase, RecomputingDenseLayersLeavesExpertsAlone) {
  PublishedRun run = Llama70B();
  run.recompute = "selective";
  run.recompute_modules = {"layernorm", "mlp"};
  EXPECT_EQ(ToString(CaseOf(run).run.layout.recompute), "selective:layernorm+mlp");
  run.model.experts = 8;
  run.model.topk = 2;
  run.model.moe_ffn = 4096;
  const PublishedCase result = CaseOf(run);
  ASSERT_EQ(result.refusal, "");
  EXPECT_EQ(ToString(result.run.layout.recompute), "selective:layernorm");
  EXPECT_NE(result.assumptions.back().find("dense layers"), std::string::npos);
  run.recompute_modules = {"mlp"};
  EXPECT_EQ(ToString(CaseOf(run).run.layout.recompute), "none") << "nothing else is told";
  run.recompute_modules = {"moe"};
  EXPECT_EQ(ToString(CaseOf(run).run.layout.recompute), "selective:mlp");
}

TEST(PublishedCase, SaysWhatItLeavesOut) {
  const auto assumption = [](const PublishedRun& run) {
    const PublishedCase result = CaseOf(run);
    EXPECT_EQ(result.refusal, "");
    return result.assumptions.empty() ? std::string() : result.assumptions.back();
  };
  PublishedRun run = Llama70B();
  EXPECT_EQ(assumption(run), "");
  run.recompute = "selective";
  run.recompute_modules = {"mla_up_proj"};
  EXPECT_EQ(ToString(CaseOf(run).run.layout.recompute), "none");
  EXPECT_EQ(assumption(run), "mla_up_proj is not recomputed");
  run = Llama70B();
  run.layout.schedule = "dualpipe";
  EXPECT_EQ(assumption(run), "schedule dualpipe as interleaved-1f1b");
  run.layout.vp = 1;
  EXPECT_EQ(CaseOf(run).run.layout.schedule, Schedule::kZeroBubble);
  EXPECT_EQ(assumption(run), "schedule dualpipe as zero-bubble, which keeps its weights once");
  run.layout.schedule = "chimera";
  EXPECT_EQ(assumption(run), "schedule chimera as 1f1b");
  run = Llama70B();
  run.year = 2022;
  run.framework = "PyTorch FSDP";
  run.layout = {.dp = 64, .zero_stage = 3};
  EXPECT_EQ(assumption(run), "attention is not fused, before PyTorch 2");
  run = Llama70B();
  run.year = 0;
  run.framework = "NeMo";
  EXPECT_EQ(assumption(run), "no year is told, so 2024");
  run = Llama70B();
  run.model.activation = "a new one";
  EXPECT_EQ(assumption(run), "a new one as SwiGLU");
  run = Llama70B();
  run.gradient_type = "int4";
  EXPECT_EQ(assumption(run), "gradients as usual, not int4");
  run = Llama70B();
  run.layout.zero_stage = 2;
  EXPECT_EQ(assumption(run), "gradients of a pipeline are reduced once a step");
  EXPECT_EQ(CaseOf(run).run.layout.zero, 1);
}

TEST(PublishedCase, ActivationsAreReadInManyWords) {
  const auto read = [](const char* kind, const char* words) {
    PublishedRun run = Llama70B();
    run.model.ffn_kind = kind;
    run.model.activation = words;
    return CaseOf(run).run.model.activation;
  };
  EXPECT_EQ(read("gelu", ""), ActivationKind::kGelu);
  EXPECT_EQ(read("gelu", "GELU"), ActivationKind::kGelu);
  EXPECT_EQ(read("gelu", "ReLU"), ActivationKind::kRelu);
  EXPECT_EQ(read("gelu", "squared ReLU, not gated"), ActivationKind::kSquaredRelu);
  EXPECT_EQ(read("gelu", "relu^2"), ActivationKind::kSquaredRelu);
  EXPECT_EQ(read("swiglu", "GeGLU (gated, three matrices)"), ActivationKind::kGeGlu);
  EXPECT_EQ(read("", "GeGLU"), ActivationKind::kGeGlu);
  EXPECT_EQ(read("", "SwiGLU"), ActivationKind::kSwiGlu);
  EXPECT_EQ(read("swiglu", "SiLU"), ActivationKind::kSwiGlu);
}

TEST(PublishedCase, SchedulesAreThoseOfTheEngine) {
  PublishedRun run = Llama70B();
  run.layout.vp = 1;
  run.layout.schedule = "GPipe";
  EXPECT_EQ(CaseOf(run).run.layout.schedule, Schedule::kGpipe);
  run.layout.schedule = "ZB-H1";
  EXPECT_EQ(CaseOf(run).run.layout.schedule, Schedule::kZeroBubble);
  run.layout.schedule = "1F1B";
  EXPECT_EQ(CaseOf(run).run.layout.schedule, Schedule::k1F1B);
}

TEST(PublishedCase, ExpertsInFp8NeedAGpuThatHasIt) {
  PublishedRun run = Llama70B();
  run.precision = "fp8";
  run.model.experts = 8;
  run.model.topk = 2;
  EXPECT_EQ(TakeRuns({run}).rows.size(), 1u);
  run.hardware.gpu = "A100-SXM4-80GB";
  const TakenRuns taken = TakeRuns({run});
  ASSERT_EQ(taken.skipped.size(), 1u);
  EXPECT_NE(taken.skipped[0].second.find("no rate of fp8"), std::string::npos);
}

TEST(PublishedCase, HfuOverMfuSaysHowMuchIsRecomputed) {
  PublishedRun run = Llama70B();
  run.framework = "fms-fsdp (PyTorch FSDP)";
  run.layout = {.dp = 64, .zero_stage = 3};
  run.recompute = "selective";
  EXPECT_EQ(CaseOf(run).run.layout.recompute[0].num_layers, 40) << "half, if nothing is told";
  run.measured.mfu = 0.40;
  run.measured.hfu = 0.50;  // a quarter more, of a third at most: three quarters of the layers
  EXPECT_EQ(CaseOf(run).run.layout.recompute[0].num_layers, 60);
}

TEST(PublishedCase, WeightsStayWholeOnlyBetweenMicroBatches) {
  PublishedRun run = Llama70B();
  run.framework = "KempnerForge (PyTorch)";
  run.layout = {.dp = 64, .zero_stage = 3};
  EXPECT_EQ(CaseOf(run).run.layout.zero, 1);
  run.global_batch = 64;
  EXPECT_EQ(CaseOf(run).run.layout.zero, 3);
}

// A driver shows 85 GB of the 80 GiB of an H100.
TEST(PublishedCase, FitsWhatTheDriverShows) {
  ValidationRow row = {.published = Llama70B(), .of = CaseOf(Llama70B())};
  Estimate estimate;
  estimate.memory.peak_total = 84'000'000'000;
  EXPECT_TRUE(SaidToFit(row, estimate));
  estimate.memory.peak_total = 86'000'000'000;
  EXPECT_FALSE(SaidToFit(row, estimate));
}

TEST(PublishedCase, SwitchesOfARunChangeItsStack) {
  PublishedRun run = Llama70B();
  run.framework = "Megatron-Bridge, NeMo container 26.04";
  const SoftwareStack plain = CaseOf(run).cluster.stack;
  EXPECT_FALSE(plain.tokens_once_per_node);
  EXPECT_GT(plain.dispatch_s.value, 0);
  run.token_dispatcher = "hybridep";
  run.experts_overlapped = true;
  run.cuda_graphs = "transformer_engine";
  const SoftwareStack parts = CaseOf(run).cluster.stack;
  EXPECT_TRUE(parts.tokens_once_per_node);
  EXPECT_LT(parts.ep_exposed.value, plain.ep_exposed.value);
  EXPECT_LT(parts.dispatch_s.value, plain.dispatch_s.value);
  EXPECT_EQ(parts.expert_launch_s, plain.expert_launch_s);
  run.cuda_graphs = "full_iteration";
  const SoftwareStack whole = CaseOf(run).cluster.stack;
  for (const Quantity& none : {whole.dispatch_s, whole.expert_launch_s, whole.host_layer_s}) {
    EXPECT_EQ(none.value, 0) << "nothing is left to the host";
  }
}

// What is recorded is priced again in the same way; and a breakdown adds up to its step.
TEST(RunPredictor, PricesAgainWithoutRecording) {
  const TakenRuns taken = TakeRuns({Llama70B()});
  ASSERT_EQ(taken.rows.size(), 1u);
  RunPredictor predictor;
  const Estimate first = predictor.Predict(taken.rows[0]);
  EXPECT_NEAR(first.breakdown_s.total(), first.step_time_s, 1e-9 * first.step_time_s);
  Cluster slower = taken.rows[0].of.cluster;
  slower.stack.compute.value /= 2;
  const Estimate second = predictor.PredictWith(taken.rows[0], slower);
  EXPECT_GT(second.step_time_s, 1.4 * first.step_time_s);
  EXPECT_EQ(second.memory, first.memory);
  EXPECT_EQ(predictor.Predict(taken.rows[0]).step_time_s, first.step_time_s);

  RunPredictor fresh;
  fresh.Predict(taken.rows[0]);
  EXPECT_EQ(fresh.PredictWith(taken.rows[0], slower).step_time_s, second.step_time_s);
}

// A row is known by what it says: another one may come to lie where it lay in memory.
TEST(RunPredictor, KnowsRowsByWhatTheySay) {
  PublishedRun other = Llama70B();
  other.model.layers = 40;
  other.model.sequence = 4096;
  RunPredictor predictor;
  ValidationRow row = TakeRuns({Llama70B()}).rows[0];
  predictor.Predict(row);
  row = TakeRuns({other}).rows[0];
  RunPredictor fresh;
  EXPECT_EQ(predictor.Predict(row).step_time_s, fresh.Predict(row).step_time_s);
}

}  // namespace
}  // namespace trimtab
