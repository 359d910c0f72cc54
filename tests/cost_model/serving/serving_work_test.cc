#include "cost_model/serving/serving_work.h"

#include <gtest/gtest.h>

#include <numeric>

#include "engine/base/error.h"
#include "engine/families/load_config.h"

namespace trimtab {
namespace {

/// C 64, H 4, KV 2, D 16, F 96, V 256, L 3.
ModelConfig SmallModel() {
  ModelConfig model;
  model.name = "small";
  model.vocab_size = 256;
  model.hidden_size = 64;
  model.num_layers = 3;
  model.num_heads = 4;
  model.num_kv_heads = 2;
  model.ffn_hidden_size = 96;
  model.max_sequence_length = 512;
  model.norm = NormKind::kRmsNorm;
  model.activation = ActivationKind::kSwiGlu;
  model.position = PositionKind::kRope;
  model.bias = false;
  model.tied_embeddings = false;
  model.make_vocab_size_divisible_by = 1;
  return model;
}

double WeightsOf(const ServingWork& work, ServingProduct::Kind kind) {
  double sum = 0;
  for (const ServingProduct& each : work.products) {
    if (each.kind == kind) sum += each.count * each.weights;
  }
  return sum;
}

double FlopsOf(const ServingWork& work, ServingProduct::Kind kind) {
  double sum = 0;
  for (const ServingProduct& each : work.products) {
    if (each.kind == kind) sum += each.count * each.flops;
  }
  return sum;
}

constexpr double kLayerWeights = 64 * (4 + 2 * 2) * 16 + 64 * 64 + 3 * 64 * 96;

TEST(ServingWork, IsThatOfAStepByHand) {
  ServingRecorder recorder(SmallModel(), {});
  const ServingWork work = recorder.Record({.sequences = 5, .context = 99});
  EXPECT_EQ(WeightsOf(work, ServingProduct::Kind::kDense), 3 * kLayerWeights);
  EXPECT_EQ(FlopsOf(work, ServingProduct::Kind::kDense), 2 * 5 * 3 * kLayerWeights);
  EXPECT_EQ(WeightsOf(work, ServingProduct::Kind::kHead), 256 * 64);
  // Keys and values of 99 tokens and the new one, of 5 sequences in 3 layers.
  EXPECT_EQ(work.kv_values, 3 * 5 * 100 * 2 * 2 * 16);
  EXPECT_EQ(work.attention_flops, 0);
  EXPECT_EQ(work.sequences, 5);
  EXPECT_EQ(work.layers, 3);
}

TEST(ServingWork, OfPromptsIsCausalAndTheirLastTokenAloneMeetsTheHead) {
  ServingRecorder recorder(SmallModel(), {});
  const ServingWork work = recorder.Record({.prompts = 2, .prompt_tokens = 8});
  EXPECT_EQ(FlopsOf(work, ServingProduct::Kind::kDense), 2 * 16 * 3 * kLayerWeights);
  EXPECT_EQ(FlopsOf(work, ServingProduct::Kind::kHead), 2 * 2 * 256 * 64);
  EXPECT_EQ(work.attention_flops, 3 * 2 * 4 * 4 * 16 * (8 * 9 / 2));
  EXPECT_EQ(work.prompt_tokens, 16);
}

TEST(ServingWork, IsSharedByTensorParallelRanksWhoseResultsAreReduced) {
  ServingRecorder one(SmallModel(), {});
  ServingRecorder two(SmallModel(), {.tp = 2});
  const ServingStep step = {.sequences = 4, .context = 31};
  EXPECT_EQ(WeightsOf(two.Record(step), ServingProduct::Kind::kDense), 3 * kLayerWeights / 2);
  EXPECT_EQ(two.Record(step).kv_values, one.Record(step).kv_values / 2);
  double reduced = 0;
  for (const ServingMessage& each : two.Record(step).messages) {
    EXPECT_EQ(each.ranks, 2);
    reduced += each.count;
  }
  EXPECT_EQ(reduced, 2 * 3 + 1);  // two a layer, and the embedding's
  EXPECT_THROW(ServingRecorder(SmallModel(), {.tp = 3}), InfeasibleError);
}

TEST(ServingWork, WindowsBoundTheKeysThatAreRead) {
  ModelConfig model = SmallModel();
  model.num_layers = 4;
  model.sliding_window = 16;
  model.full_attention_period = 2;
  ServingRecorder recorder(model, {});
  const ServingWork work = recorder.Record({.sequences = 1, .context = 99});
  EXPECT_EQ(work.kv_values, (2 * 100 + 2 * 16) * 2 * 2 * 16);
  EXPECT_TRUE(recorder.footprint().windows);
}

TEST(ServingWork, OfExpertsIsSharedByTheRanks) {
  ModelConfig model = SmallModel();
  model.moe.num_experts = 8;
  model.moe.router_topk = 2;
  model.moe.ffn_hidden_size = 32;
  model.moe.first_k_dense = 1;
  constexpr double kExperts = 8.0 * 3 * 64 * 32;
  ServingRecorder one(model, {});
  ServingRecorder two(model, {.tp = 2});
  const ServingWork alone = one.Record({.sequences = 4, .context = 9});
  EXPECT_EQ(WeightsOf(alone, ServingProduct::Kind::kExperts), 2 * kExperts);
  EXPECT_EQ(FlopsOf(alone, ServingProduct::Kind::kExperts), 2 * 2 * 4 * 2 * kExperts / 8);
  EXPECT_EQ(alone.expert_layers, 2);
  EXPECT_EQ(alone.routed_share, 0.25);
  const ServingWork shared = two.Record({.sequences = 4, .context = 9});
  EXPECT_EQ(WeightsOf(shared, ServingProduct::Kind::kExperts), kExperts);
  EXPECT_EQ(FlopsOf(shared, ServingProduct::Kind::kExperts),
            FlopsOf(alone, ServingProduct::Kind::kExperts) / 2);
}

/// C 64, H 4, of queries 24 (16 and 8 that turn), of values 16; queries of 48, keys and values
/// of 32.
ModelConfig LatentModel() {
  ModelConfig model = SmallModel();
  model.num_kv_heads = 4;
  model.latent = {.q_lora_rank = 48,
                  .kv_lora_rank = 32,
                  .qk_nope_head_dim = 16,
                  .qk_rope_head_dim = 8,
                  .v_head_dim = 16};
  return model;
}

// DeepSeek-V2 (arXiv:2405.04434, section 2.1.2), absorbed: all heads read the one compressed
// vector.
TEST(ServingWork, OfLatentAttentionByHand) {
  ServingRecorder recorder(LatentModel(), {});
  const ServingWork work = recorder.Record({.sequences = 5, .context = 99});
  constexpr double kDown = 64 * 48 + 64 * (32 + 8);
  constexpr double kHeads = 4 * (48 * 24 + 32 * 16 + 32 * 16 + 16 * 64);
  constexpr double kLayer = kDown + kHeads + 3 * 64 * 96;
  EXPECT_EQ(WeightsOf(work, ServingProduct::Kind::kDense), 3 * kLayer);
  EXPECT_EQ(FlopsOf(work, ServingProduct::Kind::kDense), 2 * 5 * 3 * kLayer);
  EXPECT_EQ(work.kv_values, 3 * 5 * 100 * (32 + 8));
  EXPECT_DOUBLE_EQ(work.decode_flops, 3 * 5 * 100 * 4 * 2.0 * (32 + 8 + 32));
  EXPECT_EQ(work.attention_flops, 0);

  // What goes down is on every rank; of heads each has its own; of the cache each reads all.
  ServingRecorder two(LatentModel(), {.tp = 2});
  const ServingWork shared = two.Record({.sequences = 5, .context = 99});
  EXPECT_EQ(WeightsOf(shared, ServingProduct::Kind::kDense),
            3 * (kDown + kHeads / 2 + 3 * 64 * 96 / 2));
  EXPECT_EQ(shared.kv_values, work.kv_values);
  EXPECT_DOUBLE_EQ(shared.decode_flops, work.decode_flops / 2);
}

TEST(ServingWork, OfLatentPromptsIsLessWhereTheyAreExpanded) {
  constexpr double kScores = 3 * 2 * 4 * (8 * 9 / 2);
  const ServingStep step = {.prompts = 2, .prompt_tokens = 8};
  ServingRecorder absorbed(LatentModel(), {});
  ServingRecorder expanded(LatentModel(), {.expands_prompts = true});
  EXPECT_DOUBLE_EQ(absorbed.Record(step).attention_flops, kScores * 2 * (32 + 8 + 32));
  EXPECT_DOUBLE_EQ(expanded.Record(step).attention_flops, kScores * 2 * (16 + 8 + 16));
  EXPECT_EQ(absorbed.Record(step).decode_flops, 0);
}

TEST(ServingWork, OfLatentProjectionsInSixteenBits) {
  const auto low = [](const ServingLayout& layout) {
    double weights = 0;
    for (const ServingProduct& each :
         ServingRecorder(LatentModel(), layout).Record({.sequences = 1}).products) {
      weights += each.low_precision ? each.count * each.weights : 0;
    }
    return weights;
  };
  const ServingLayout all = {.weights = ServingPrecision::kFp8};
  ServingLayout wide = all;
  wide.wide_latent = true;
  // Left are the output's projection of 4 heads of 16, and the MLP.
  EXPECT_EQ(low(wide), 3 * (4 * 16 * 64 + 3 * 64 * 96));
  // One byte more for each that is not.
  EXPECT_EQ(ServingRecorder(LatentModel(), wide).footprint().weight_bytes -
                ServingRecorder(LatentModel(), all).footprint().weight_bytes,
            low(all) - low(wide));
  EXPECT_THROW(ServingRecorder(SmallModel(), wide), UsageError);
}

TEST(ServingWork, CountsKernelsByLayer) {
  ModelConfig normed = SmallModel();
  normed.query_key_norm = true;
  const auto kernels = [](const ModelConfig& model) {
    return ServingRecorder(model, {}).Record({.sequences = 1}).kernels;
  };
  EXPECT_EQ(kernels(SmallModel()), 3 * 12);
  EXPECT_EQ(kernels(normed), 3 * 15);
  EXPECT_EQ(kernels(LatentModel()), 3 * 20);
}

// DeepSeek-V3's report (arXiv:2412.19437): 512 + 64 values a token and layer, whatever the ranks.
TEST(ServingFootprint, OfLatentAttentionIsTheCompressedVector) {
  for (const int64_t tp : {1, 8}) {
    const ServingRecorder recorder(LoadModelConfig("deepseek-v3"), {.tp = tp, .kv_bytes = 2});
    EXPECT_EQ(recorder.footprint().kv_bytes_per_token, 61 * (512 + 64) * 2);
  }
}

TEST(ServingFootprint, IsWeightsAndCacheByHand) {
  const ServingRecorder recorder(SmallModel(),
                                 {.weights = ServingPrecision::kNvFp4, .kv_bytes = 1});
  const double norms = 2 * 64 * 2;
  EXPECT_DOUBLE_EQ(recorder.footprint().weight_bytes,
                   3 * (kLayerWeights * 0.5625 + norms) + 2 * 2 * 256 * 64);
  EXPECT_EQ(recorder.footprint().kv_bytes_per_token, 3 * 2 * 2 * 16);
}

}  // namespace
}  // namespace trimtab
