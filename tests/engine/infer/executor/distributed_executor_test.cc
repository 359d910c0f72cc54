// Serving on several ranks: what one rank answers, on any layout.
#include "engine/infer/executor/distributed_executor.h"

#include <gtest/gtest.h>

#include <numeric>

#include "engine/base/error.h"
#include "engine/base/units.h"
#include "engine/families/load_config.h"
#include "engine/infer/executor/rank_work.h"
#include "tests/engine/infer/golden_weights.h"
#include "tests/engine/infer/serving_layouts.h"
#include "tests/engine/train/families.h"

namespace trimtab {
namespace {

constexpr double kLogitTolerance = 2e-5;   // of PyTorch's, as of one rank
constexpr double kLayoutTolerance = 1e-5;  // sums are cut otherwise than on one rank

/// Logits of golden sequences 0 and 1, side by side, in chunks of unlike lengths.
std::vector<float> Serve(const GoldenWeights& weights, const ServingConfig& config) {
  DistributedExecutor runner(config, weights);
  std::vector<float> logits[2];
  int64_t done[2] = {};
  for (int64_t step = 0; done[0] < weights.sequence_length(); ++step) {
    StepPlan plan;
    for (int64_t i = 0; i < 2; ++i) {
      const int64_t count = std::min(weights.sequence_length() - done[i], 1 + (step + 2 * i) % 4);
      if (count == 0) continue;
      const std::vector<int32_t> tokens = weights.Tokens(i);
      const auto first = tokens.begin() + done[i];
      std::vector<int32_t> blocks(6);
      std::iota(blocks.begin(), blocks.end(), static_cast<int32_t>(6 * i));
      plan.sequences.push_back({.tokens = {first, first + count},
                                .first_position = done[i],
                                .blocks = blocks,
                                .logits = count});
      done[i] += count;
    }
    std::vector<float> rows = runner.Run(plan);
    auto row = rows.begin();
    for (const PlannedSequence& each : plan.sequences) {
      const size_t sequence = each.blocks[0] == 0 ? 0 : 1;
      const int64_t count = each.logits * weights.model().vocab_size;
      logits[sequence].insert(logits[sequence].end(), row, row + count);
      row += count;
    }
    EXPECT_EQ(row, rows.end());
  }
  return logits[0];
}

void ExpectNear(const std::vector<float>& actual, const std::vector<float>& expected,
                double tolerance) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    ASSERT_NEAR(actual[i], expected[i], tolerance) << "element " << i;
  }
}

/// Configurations of the family's golden model in every layout of one replica.
std::vector<ServingConfig> Layouts(const GoldenWeights& weights) {
  std::vector<ServingConfig> all = InEveryLayout(GoldenServing(weights));
  std::erase_if(all, [](const ServingConfig& config) { return config.layout.dp > 1; });
  return all;
}

class RankRunnerTest : public testing::TestWithParam<std::string> {};

TEST_P(RankRunnerTest, AnswersAsOneRank) {
  const GoldenWeights weights(GetParam());
  const std::vector<float> alone = Serve(weights, ResolveServing(GoldenServing(weights)));
  for (const ServingConfig& config : Layouts(weights)) {
    SCOPED_TRACE(ToString(config.layout));
    const std::vector<float> logits = Serve(weights, config);
    ExpectNear(logits, weights.Logits(0), kLogitTolerance);
    ExpectNear(logits, alone, kLayoutTolerance);
  }
}

/// The states of a text of which the first part is in the cache.
std::vector<float> StatesOf(const GoldenWeights& weights, const ServingConfig& config) {
  DistributedExecutor runner(config, weights);
  const std::vector<int32_t> tokens = weights.Tokens(0);
  std::vector<float> states;
  for (const int64_t begin : {0, 3}) {
    const int64_t end = begin == 0 ? 3 : weights.sequence_length();
    const StepPlan plan = {.sequences = {{.tokens = {tokens.begin() + begin, tokens.begin() + end},
                                          .first_position = begin,
                                          .blocks = {5, 2, 8, 1, 0, 3},
                                          .logits = end - begin}},
                           .output = StepOutput::kStates};
    const std::vector<float> rows = runner.Run(plan);
    EXPECT_EQ(std::ssize(rows), (end - begin) * weights.model().hidden_size);
    states.insert(states.end(), rows.begin(), rows.end());
  }
  return states;
}

TEST_P(RankRunnerTest, StatesAreThoseOfOneRank) {
  const GoldenWeights weights(GetParam());
  const std::vector<float> alone = StatesOf(weights, ResolveServing(GoldenServing(weights)));
  for (const ServingConfig& config : Layouts(weights)) {
    SCOPED_TRACE(ToString(config.layout));
    ExpectNear(StatesOf(weights, config), alone, kLayoutTolerance);
  }
}

INSTANTIATE_TEST_SUITE_P(Families, RankRunnerTest, testing::ValuesIn(FamilyNames()),
                         [](const auto& family) { return family.param; });

/// Logits of a text whose beginning is in the blocks of one runner, and which goes on in others of
/// another.
std::vector<float> ServeInTwo(const GoldenWeights& weights, const ServingConfig& config) {
  DistributedExecutor first(config, weights);
  DistributedExecutor second(config, weights);
  const std::vector<int32_t> tokens = weights.Tokens(0);
  const int64_t begun = weights.sequence_length() / 2;
  const std::vector<int32_t> from = {5, 2, 8, 1, 0, 3};
  const std::vector<int32_t> to = {0, 7, 4, 9, 2, 6};
  const auto rows = [&](int64_t begin, int64_t end, const std::vector<int32_t>& blocks) {
    return StepPlan{.sequences = {{.tokens = {tokens.begin() + begin, tokens.begin() + end},
                                   .first_position = begin,
                                   .blocks = blocks,
                                   .logits = end - begin}}};
  };
  std::vector<float> logits = first.Run(rows(0, begun, from));
  const auto count = static_cast<size_t>(CeilDiv(begun, config.block_size));
  const BlockContents contents = first.ReadBlocks(std::span(from).first(count));
  // All of them, and once more the last ones, as for who knows the first.
  const std::span into = std::span(to).first(count);
  second.WriteBlocks(into, contents);
  second.WriteBlocks(into.subspan(1), contents);
  const std::vector<float> rest = second.Run(rows(begun, weights.sequence_length(), to));
  logits.insert(logits.end(), rest.begin(), rest.end());
  return logits;
}

TEST_P(RankRunnerTest, GoesOnWithBlocksOfAnother) {
  const GoldenWeights weights(GetParam());
  for (const ServingConfig& config : Layouts(weights)) {
    SCOPED_TRACE(ToString(config.layout));
    ExpectNear(ServeInTwo(weights, config), weights.Logits(0), kLogitTolerance);
  }
}

TEST(RankWorkTest, ComesBackFromItsNumbers) {
  const StepPlan plan = {{{.tokens = {5, 0, 7}, .first_position = 2, .blocks = {3}, .logits = 1},
                          {.tokens = {1}, .first_position = 0, .blocks = {9, 0, 4}, .logits = 0}}};
  const StepPlan back = UnpackWork(PackWork({.plan = plan})).plan;
  ASSERT_EQ(back.sequences.size(), 2u);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(back.sequences[i].tokens, plan.sequences[i].tokens);
    EXPECT_EQ(back.sequences[i].first_position, plan.sequences[i].first_position);
    EXPECT_EQ(back.sequences[i].blocks, plan.sequences[i].blocks);
    EXPECT_EQ(back.sequences[i].logits, plan.sequences[i].logits);
  }
  EXPECT_TRUE(UnpackWork(PackWork({})).plan.sequences.empty());
  const RankWork read =
      UnpackWork(PackWork({.kind = RankWork::Kind::kReadBlocks, .blocks = {3, 0, 7}}));
  EXPECT_EQ(read.kind, RankWork::Kind::kReadBlocks);
  EXPECT_EQ(read.blocks, (std::vector<int32_t>{3, 0, 7}));
}

TEST(RankRunnerErrors, WhatARankThrowsIsThrown) {
  const GoldenWeights weights("gpt2");
  ServingConfig config = GoldenServing(weights);
  config.layout = ParseLayout("tp=2", 0);
  config.memory_per_rank_bytes = 10000;
  EXPECT_THROW(DistributedExecutor(ResolveServing(config), weights), OutOfMemoryError);
}

std::string RefusalOf(const ServingConfig& config) {
  try {
    ResolveServing(config);
  } catch (const InfeasibleError& error) {
    return error.what();
  }
  return "";
}

TEST(ServingRulesTest, EveryRuleRefusesByName) {
  const ServingConfig good = GoldenServing(GoldenWeights("mixtral"));
  EXPECT_EQ(RefusalOf(good), "");
  std::map<std::string, ServingConfig> bad;
  const auto breaks = [&](const char* rule) -> ServingConfig& {
    return bad.emplace(rule, good).first->second;
  };
  breaks("serving-layout").layout.cp = 2;
  breaks("serving-prefill").prefill = 1;
  breaks("serving-precision").layout.numerics.precision = Precision::kFp8;
  breaks("serving-routing").model.moe.capacity_factor = 1.5;
  breaks("serving-int4-groups").weights = WeightFormat::kInt4;
  breaks("serving-limits").limits.tokens_per_step = 3;
  ServingConfig& speculation = breaks("serving-speculation");
  speculation.lookup_tokens = 2;
  speculation.draft = {good.model, good.weights, /*tokens=*/2};
  ServingConfig& draft = breaks("serving-draft");
  draft.draft = {good.model, good.weights, /*tokens=*/2};
  draft.draft.model.vocab_size *= 2;
  ServingConfig& length = breaks("serving-length");
  length.model.position = PositionKind::kLearned;
  length.limits.sequence_length = length.model.max_sequence_length + 1;
  ServingConfig& cache = breaks("serving-cache");
  cache.cache_blocks = 2;
  cache.limits.sequence_length = 9;
  EXPECT_EQ(bad.size(), ServingRules().size());
  for (const auto& [rule, config] : bad) {
    EXPECT_TRUE(RefusalOf(config).starts_with(rule + ": ")) << rule << ": " << RefusalOf(config);
  }
}

TEST(ServingRulesTest, NamesTheSizeThatInt4DoesNotDivide) {
  ServingConfig config;
  config.model = LoadModelConfig("llama-tiny");
  config.weights = WeightFormat::kInt4;
  config.layout.tp = 2;
  ASSERT_EQ(RefusalOf(config), "");
  const auto refusal = [&config](int64_t ModelConfig::*size, int64_t value) {
    ServingConfig other = config;
    other.model.*size = value;
    return RefusalOf(other);
  };
  EXPECT_EQ(refusal(&ModelConfig::ffn_hidden_size, 96),
            "serving-int4-groups: ffn_hidden_size is 96 over tp 2; expected a multiple of 64");
  EXPECT_EQ(refusal(&ModelConfig::embedding_dim, 40),
            "serving-int4-groups: embedding size is 40; expected a multiple of 32");
  EXPECT_EQ(refusal(&ModelConfig::head_dim, 24),
            fmt::format("serving-int4-groups: attention size is {} over tp 2; expected a multiple "
                        "of 64",
                        24 * config.model.num_heads));
}

// Beyond the angles that a model was trained on its answers make no sense; scaling says how far
// they reach.
TEST(ServingRulesTest, RotaryPositionsReachAsFarAsTheirScaling) {
  ServingConfig config;
  config.model = LoadModelConfig("llama-tiny");
  const int64_t length = config.model.max_sequence_length;
  config.limits.sequence_length = 4 * length;
  EXPECT_TRUE(RefusalOf(config).starts_with("serving-length: ")) << RefusalOf(config);
  RopeScaling& scaling = config.model.rope_scaling;
  scaling = {.kind = RopeScalingKind::kYarn, .factor = 4, .original_length = length};
  EXPECT_EQ(RefusalOf(config), "");
  scaling.factor = 2;
  EXPECT_TRUE(RefusalOf(config).starts_with("serving-length: ")) << RefusalOf(config);
  scaling = {.kind = RopeScalingKind::kLinear, .factor = 4};
  EXPECT_EQ(RefusalOf(config), "");
  scaling = {};
  config.model.position = PositionKind::kAlibi;
  EXPECT_EQ(RefusalOf(config), "");
}

TEST(ServingRulesTest, ADraftModelObeysThemToo) {
  ServingConfig config = GoldenServing(GoldenWeights("llama"));
  config.draft = {config.model, config.weights, /*tokens=*/2};
  config.draft.model.position = PositionKind::kLearned;
  config.draft.model.max_sequence_length = config.limits.sequence_length - 1;
  EXPECT_TRUE(RefusalOf(config).starts_with("serving-draft: serving-length: "))
      << RefusalOf(config);
}

}  // namespace
}  // namespace trimtab
