// The closed form and the dry run agree: to the FLOP, the message and the byte.
#include "cost_model/closed_form/closed_form.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

#include "cost_model/dry_run/dry_run.h"
#include "cost_model/hardware/numerics.h"
#include "engine/base/error.h"
#include "engine/families/load_config.h"
#include "tests/cost_model/closed_form/same_estimate.h"
#include "tests/cost_model/closed_form/spaces.h"

namespace trimtab {
namespace {

void ExpectTiersAgree(const std::vector<RunConfig>& runs, const Cluster& cluster) {
  ASSERT_FALSE(runs.empty());
  ClosedFormEstimator estimator(runs.front().model, runs.front().sequence_length, cluster);
  for (const RunConfig& run : runs) {
    SCOPED_TRACE(Describe(run));
    ExpectSameEstimate(estimator.Run(run), DryRun(run, cluster),
                       {.overlap = cluster.device != DeviceKind::kCpu});
    if (testing::Test::HasFailure()) return;
  }
}

TEST(ClosedForm, EqualsTheDryRunOverEveryLayoutOfAGpt2) {
  EXPECT_GT(EveryRun(TinyGpt2(), 12, 20, 16).size(), 200u) << "the space is as large as it looks";
  for (const int64_t global_batch : {1, 4, 6, 12}) {
    ExpectTiersAgree(EveryRun(TinyGpt2(), global_batch, 20, 16), GenericCpu());
  }
}

TEST(ClosedForm, EqualsTheDryRunOverEveryLayoutOfALlama) {
  for (const int64_t global_batch : {2, 8}) {
    ExpectTiersAgree(EveryRun(TinyLlama(), global_batch, 12, 16), GenericCpu());
  }
}

/// The closed form and the dry run of each stage.
void ExpectStagesAgree(const std::vector<RunConfig>& runs, const Cluster& cluster) {
  ASSERT_FALSE(runs.empty());
  ClosedFormEstimator estimator(runs.front().model, runs.front().sequence_length, cluster);
  for (const RunConfig& run : runs) {
    SCOPED_TRACE(Describe(run));
    ExpectSameStages(estimator, run, cluster);
    if (testing::Test::HasFailure()) return;
  }
}

TEST(ClosedForm, EqualsTheDryRunOfEveryStageOverPipelines) {
  const std::vector<RunConfig> runs = EveryPipeline(TinyGpt2(), 20, 8);
  EXPECT_GT(runs.size(), 300u);
  ExpectStagesAgree(runs, GenericCpu());
  ExpectStagesAgree(EveryPipeline(TinyLlama(), 12, 8), LoadCluster("2x8xh200"));
}

/// What is remembered of one run is not taken for another's.
TEST(ClosedForm, KnowsRunsApartWhichDifferInRanksAndBatch) {
  const Cluster cluster = LoadCluster("4x2xh200");
  RunConfig run;
  run.model = TinyLlama();
  run.sequence_length = 12;
  run.device = DeviceKind::kCuda;
  ClosedFormEstimator estimator(run.model, run.sequence_length, cluster);
  for (const char* shards : {"zero=0", "zero=2", "zero=2,shard=2", "zero=3", "zero=3,shard=2",
                             "zero=3,reshard_after_forward=0"}) {
    for (const char* ranks : {"pp=1,dp=4", "pp=2,dp=4", "pp=2,dp=2"}) {
      run.layout = ParseLayout(fmt::format("tp=1,{},mbs=1,{}", ranks, shards), 0);
      run.global_batch = 2 * run.layout.pp * run.layout.dp;
      SCOPED_TRACE(Describe(run));
      const Estimate known = estimator.Run(run);
      const Estimate fresh = ClosedForm(run, cluster);
      EXPECT_EQ(known.step_time_s, fresh.step_time_s);
      EXPECT_EQ(known.memory.peak_total, fresh.memory.peak_total);
    }
  }
}

TEST(ClosedForm, EqualsTheDryRunWhereSequencesAreCut) {
  const std::vector<RunConfig> runs = EveryContextParallelRun(TinyGpt2(), 20, 10);
  EXPECT_GT(runs.size(), 300u);
  ExpectTiersAgree(runs, GenericCpu());
  ExpectTiersAgree(EveryContextParallelRun(TinyLlama(), 12, 6), LoadCluster("2x8xh200"));
}

TEST(ClosedForm, EqualsTheDryRunInEverySettingOfSharding) {
  ExpectStagesAgree(RunsIn(ShardingSettings(), TinyGpt2(), 20), GenericCpu());
  std::vector<RunConfig> fp8 = RunsIn(ShardingSettings(), TinyFp8Llama(), 16);
  for (RunConfig& run : fp8) run.layout.numerics.precision = Precision::kFp8;
  ExpectStagesAgree(fp8, GenericCpu());
}

TEST(ClosedForm, EqualsTheDryRunWhereTensorParallelMessagesOverlap) {
  const std::vector<RunConfig> runs = RunsIn(TpOverlapSettings(), TinyGpt2(), 20);
  EXPECT_GT(runs.size(), 20u);
  ExpectStagesAgree(runs, GenericCpu());
  ExpectStagesAgree(RunsIn(TpOverlapSettings(), TinyLlama(), 20), LoadCluster("2x8xh200"));
}

TEST(ClosedForm, EqualsTheDryRunOnGpus) {
  ExpectTiersAgree(EveryRun(TinyGpt2(), 4, 16, 16), LoadCluster("2x8xh200"));
}

TEST(ClosedForm, EqualsTheDryRunInEveryPrecisionAndOptimizerState) {
  for (const Precision precision :
       {Precision::kFp32, Precision::kBf16, Precision::kFp16, Precision::kFp8}) {
    const std::vector<RunConfig> runs = EveryRunIn(precision, DeviceKind::kCpu);
    EXPECT_GT(runs.size(), 200u) << Name(precision);
    ExpectTiersAgree(runs, GenericCpu());
  }
}

TEST(ClosedForm, EqualsTheDryRunInEveryPrecisionOnGpus) {
  for (const Precision precision : Precisions()) {
    ExpectTiersAgree(EveryRunIn(precision, DeviceKind::kCuda), LoadCluster("2x8xh200"));
  }
}

TEST(ClosedForm, EqualsTheDryRunWhereLayersDifferInPrecision) {
  const std::vector<std::vector<std::string>> kept = {
      {"decoder.layers.0"},
      {"decoder.layers.2.mlp", "decoder.layers.0.self_attention.linear_qkv"},
      {"decoder.layers.1.mlp.linear_fc2", "decoder.layers.1.self_attention.linear_proj"},
      {"decoder"}};
  for (const char* scaling : {"delayed", "current"}) {
    std::vector<RunConfig> runs;
    for (const std::vector<std::string>& layers : kept) {
      for (RunConfig run : EveryRun(TinyFp8Llama(), 4, 16, 8)) {
        run.layout.numerics.precision = Precision::kFp8;
        run.fp8 = {.scaling = scaling, .history = 3, .bf16_layers = layers};
        if (FirstBrokenRule(run) == nullptr) runs.push_back(run);
      }
    }
    ExpectTiersAgree(runs, GenericCpu());
  }
}

TEST(ClosedForm, ALayerThatIsNotThereIsRefused) {
  RunConfig run = EveryRunIn(Precision::kFp8, DeviceKind::kCpu).front();
  run.fp8.bf16_layers = {"decoder.layers.3"};
  EXPECT_THROW(ClosedForm(run, GenericCpu()), InputError);
  EXPECT_THROW(DryRun(run, GenericCpu()), InputError);
}

TEST(ClosedForm, APrecisionWithoutARateIsRefused) {
  const RunConfig run = EveryRunIn(Precision::kFp8, DeviceKind::kCuda).front();
  EXPECT_THROW(ClosedForm(run, LoadCluster("8xa100")), UsageError);
  EXPECT_THROW(DryRun(run, LoadCluster("8xa100")), UsageError);
}

// Buckets of data-parallel gradients only split on models of more than 25 MiB of gradients.
TEST(ClosedForm, EqualsTheDryRunWithSeveralGradientBuckets) {
  ModelConfig model = TinyGpt2();
  model.hidden_size = 768;
  model.num_heads = 12;
  model.num_kv_heads = 12;
  model.ffn_hidden_size = 3072;
  model.num_layers = 5;
  const std::vector<RunConfig> runs = EveryRun(model, 4, 20, 4);
  ExpectTiersAgree(runs, GenericCpu());
  const Estimate estimate = ClosedForm(runs.back(), GenericCpu());
  EXPECT_GT(estimate.ranks, 1);
}

/// Draws precision, optimizer state and fp8 settings.
void DrawNumerics(std::mt19937& random, RunConfig& run) {
  run.layout.numerics.precision = Precisions()[random() % Precisions().size()];
  const std::vector<std::string> states = EveryOptimizerState(run.layout.numerics.precision);
  SetOptimizerState(states[random() % states.size()], run.layout.numerics);
  run.fp8.scaling = random() % 2 == 0 ? "delayed" : "current";
  run.fp8.history = 1 + static_cast<int64_t>(random() % 5);
  const std::vector<std::string> layers = {"decoder.layers.0", "decoder.layers.0.mlp",
                                           "decoder.layers.0.mlp.linear_fc1", "decoder"};
  if (random() % 2 == 0) run.fp8.bf16_layers = {layers[random() % layers.size()]};
}

RecomputeConfig RandomPlan(std::mt19937& random) {
  const std::string layers = std::to_string(1 + random() % 7);
  switch (random() % 5) {
    case 0:
      return {};
    case 1:
      return ParseRecompute("full", "plan");
    case 2:
      return ParseRecompute("full:block:" + layers, "plan");
    case 3:
      return ParseRecompute("full:uniform:" + layers, "plan");
    default:
      const auto modules = static_cast<uint8_t>(1 + random() % 31);
      return {.kind = RecomputeKind::kSelective, .modules = {.bits = modules}};
  }
}

/// What the families of dense models differ in.
void DrawFamily(std::mt19937& random, bool fp8, ModelConfig& model) {
  const auto often = [&random] { return random() % 2 == 0; };
  const auto seldom = [&random] { return random() % 4 == 0; };
  model.block = static_cast<BlockKind>(seldom() ? random() % 7 : 0);
  if (seldom()) model.head_dim = fp8 ? 32 : 10;
  if (seldom()) model.qkv_bias = often();
  if (seldom()) model.mlp_bias = often();
  model.norm_bias = !seldom();
  model.norm_weight_plus_one = seldom();
  model.embedding_norm = seldom();
  model.embedding_scale = seldom() ? 2.5 : 1.0;
  model.embedding_dim = seldom() ? 20 : 0;
  model.final_norm = !seldom();
  model.output_bias = seldom();
  model.logit_soft_cap = seldom() ? 30 : 0;
  model.attention_soft_cap = seldom() ? 50 : 0;
  model.query_key_norm = seldom();
  model.qkv_clip = seldom() ? 8 : 0;
  model.attention_sinks = seldom();
  model.position_offset = seldom() ? 2 : 0;
  model.sliding_window = seldom() ? 5 : 0;
  model.full_attention_period = often() ? 2 : 0;
  model.query_key_norm_whole = model.query_key_norm && often();
  model.window_rope_theta = seldom() ? 500 : 0;
}

/// Latent attention, and what it does without.
void DrawLatent(std::mt19937& random, bool fp8, ModelConfig& model) {
  model.num_kv_heads = model.num_heads;
  model.norm = NormKind::kRmsNorm;
  model.position = PositionKind::kRope;
  model.bias = false;
  model.qkv_bias.reset();
  model.query_key_norm = model.query_key_norm_whole = false;
  model.qkv_clip = 0;
  model.head_dim = 0;
  model.latent = {.q_lora_rank = random() % 2 == 0 ? 0 : 12,
                  .kv_lora_rank = 10,
                  .qk_nope_head_dim = 6,
                  .qk_rope_head_dim = 4,
                  .v_head_dim = 7};
  if (!fp8) return;
  for (int64_t* size :
       {&model.latent.q_lora_rank, &model.latent.kv_lora_rank, &model.latent.qk_nope_head_dim,
        &model.latent.qk_rope_head_dim, &model.latent.v_head_dim}) {
    *size = *size > 0 ? 16 : 0;
  }
}

/// A legal run drawn at random: any family, odd sizes, any layout, any precision.
RunConfig RandomRun(std::mt19937& random) {
  const auto pick = [&random](std::initializer_list<int64_t> choices) {
    return choices.begin()[random() % choices.size()];
  };
  for (;;) {
    RunConfig run;
    DrawNumerics(random, run);
    const bool fp8 = run.layout.numerics.precision == Precision::kFp8;  // wants multiples of 16
    ModelConfig& model = run.model;
    model.name = "random";
    model.num_heads = pick({1, 2, 4, 6, 8, 12});
    model.num_kv_heads = model.num_heads / pick({1, 1, 2, 3, 6});
    if (model.num_kv_heads == 0 || model.num_heads % model.num_kv_heads != 0) continue;
    model.hidden_size = model.num_heads * (fp8 ? pick({16, 32, 48}) : pick({2, 6, 8, 16, 32}));
    model.num_layers = pick({1, 2, 3, 7});
    model.ffn_hidden_size = fp8 ? pick({96, 144, 192}) : pick({12, 36, 100, 144});
    model.vocab_size = pick({11, 64, 257, 1000});
    model.make_vocab_size_divisible_by = pick({1, 8, 128});
    model.max_sequence_length = pick({24, 64});
    model.norm = pick({0, 1}) != 0 ? NormKind::kRmsNorm : NormKind::kLayerNorm;
    model.activation = static_cast<ActivationKind>(pick({0, 1, 0, 1, 2, 3, 4, 5, 6, 7}));
    model.position = static_cast<PositionKind>(pick({0, 1, 0, 1, 2, 3}));
    model.bias = pick({0, 1}) != 0;
    model.tied_embeddings = pick({0, 1}) != 0;
    DrawFamily(random, fp8, model);
    if (pick({0, 0, 0, 1}) != 0) DrawLatent(random, fp8, model);
    run.device = pick({0, 1}) != 0 || run.layout.numerics.precision == Precision::kTf32
                     ? DeviceKind::kCuda
                     : DeviceKind::kCpu;
    run.sequence_length = fp8 ? pick({8, 16, 24}) : pick({1, 6, 12, 24});
    run.global_batch = pick({1, 2, 6, 12, 24});
    run.steps = 1;
    run.threads_per_rank = pick({1, 1, 2, 5});
    ParallelConfig& layout = run.layout;
    layout.tp = pick({1, 2, 3, 4, 6});
    layout.dp = pick({1, 2, 3, 4, 5, 6});
    layout.cp = pick({1, 1, 2, 3});
    if (layout.cp > 1 && pick({0, 1}) != 0) layout.cp_comm_type = CpCommType::kAllGather;
    layout.sequence_parallel = pick({0, 1}) != 0;
    layout.tp_overlap_chunks = pick({1, 1, 2, 3});
    layout.micro_batch = pick({1, 2, 3});
    layout.zero = pick({0, 1, 2, 3});
    layout.shard = pick({0, 0, 2, 3});
    layout.reshard_after_forward = pick({0, 1, 1}) != 0;
    layout.overlap_grad_reduce = pick({0, 1}) != 0;
    layout.overlap_param_gather = pick({0, 0, 1}) != 0;
    layout.recompute = RandomPlan(random);
    if (FirstBrokenRule(run) == nullptr) return run;
  }
}

TEST(ClosedForm, EqualsTheDryRunOnRandomModelsAndLayouts) {
  std::mt19937 random(20240611);
  const Cluster cpu = GenericCpu();
  const Cluster gpus = LoadCluster("4x8xh200");
  std::set<Precision> precisions;
  for (int i = 0; i < 1000; ++i) {
    const RunConfig run = RandomRun(random);
    const Cluster& cluster = run.device == DeviceKind::kCuda ? gpus : cpu;
    precisions.insert(run.layout.numerics.precision);
    SCOPED_TRACE(Describe(run) + " model " + std::to_string(i));
    ExpectSameEstimate(ClosedForm(run, cluster), DryRun(run, cluster),
                       {.overlap = cluster.device != DeviceKind::kCpu});
    if (HasFailure()) return;
  }
  EXPECT_EQ(precisions.size(), 5u);
}

/// A calibrated mode of one table, in which whole steps take `factor` times their parts.
Cluster WithStepFactor(double factor) {
  HardwareProfile profile = BuiltinProfile("cpu");
  ModeTables& tables = profile.modes.emplace_back();
  tables.mode = {4, 1};
  tables.step_factor = factor;
  return LocalMachine(profile);
}

TEST(ClosedForm, TheStepFactorShowsAsOverheadOrScalesEveryPart) {
  RunConfig run = EveryRun(TinyGpt2(), 4, 20, 1).front();
  run.layout.tp = 2;
  run.layout.dp = 2;
  const Estimate plain = ClosedForm(run, WithStepFactor(1));
  EXPECT_EQ(plain.breakdown_s.overhead, 0);
  for (const double factor : {0.8, 1.5}) {
    const Estimate estimate = ClosedForm(run, WithStepFactor(factor));
    ExpectSameEstimate(estimate, DryRun(run, WithStepFactor(factor)), {});
    EXPECT_NEAR(estimate.step_time_s, factor * plain.step_time_s, 1e-9 * plain.step_time_s);
    EXPECT_NEAR(estimate.breakdown_s.total(), estimate.step_time_s, 1e-9 * plain.step_time_s);
    EXPECT_GE(estimate.breakdown_s.overhead, 0);
  }
}

// Of the ring only the last gradient's way home shows, where products take longer than messages; of
// gathered keys and values, the reduce-scatter of all gradients.
TEST(ClosedForm, ShowsWhatNothingHidesOfContextParallelMessages) {
  RunConfig run;
  run.model = LoadModelConfig("llama2-7b");
  run.device = DeviceKind::kCuda;
  run.global_batch = 8;
  run.sequence_length = 32768;
  const Cluster cluster = LoadCluster("8xh200");
  const auto exposed = [&](const char* layout) {
    run.layout = ParseLayout(layout, 0);
    return ClosedForm(run, cluster).breakdown_s.exposed_cp;
  };
  const double ring = exposed("cp=4,dp=2,precision=bf16");
  const double gathered = exposed("cp=4,dp=2,precision=bf16,cp_comm_type=all_gather");
  EXPECT_GT(ring, 0);
  EXPECT_GT(gathered, 2 * ring);
  EXPECT_LT(gathered, 5 * ring);
}

TEST(ClosedForm, RefusesAnIllegalLayout) {
  RunConfig run = EveryRun(TinyGpt2(), 4, 20, 1).front();
  run.layout.tp = 3;  // 4 heads
  EXPECT_THROW(ClosedForm(run, GenericCpu()), InfeasibleError);
}

}  // namespace
}  // namespace trimtab
