// Speculation with a draft model: the same tokens as without it, and fewer steps.
#include "engine/infer/scheduler/draft_model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "engine/base/error.h"
#include "engine/infer/replicas/make_engine.h"
#include "tests/engine/infer/golden_weights.h"

namespace trimtab {
namespace {

/// What an engine has answered, and how.
struct Outcome {
  std::map<RequestId, std::vector<int32_t>> tokens;
  EngineMetrics metrics;
};

/// `count` requests of the golden texts, drawn at a temperature with seeds of their own.
Outcome Answer(const GoldenWeights& weights, const GoldenWeights* draft, double temperature,
               int64_t count, int64_t cache_blocks = 0) {
  ServingConfig config = GoldenServing(weights);
  config.limits.tokens_per_step = 8;
  config.cache_blocks = cache_blocks;
  if (draft != nullptr) config.draft = {draft->model(), draft->format(), /*tokens=*/3};
  const std::unique_ptr<Engine> engine = MakeEngine(config, weights, draft);
  for (int64_t i = 0; i < count; ++i) {
    const std::vector<int32_t> text = weights.Tokens(i % weights.sequences());
    GenerationRequest request;
    request.prompt = {text.begin(), text.begin() + 3 + i % 5};
    request.max_tokens = 14;
    request.sampling.temperature = temperature;
    request.sampling.seed = static_cast<uint64_t>(i);
    EXPECT_TRUE(std::holds_alternative<RequestId>(engine->AddRequest(request)));
  }
  Outcome outcome;
  while (engine->HasWork()) {
    for (const RequestUpdate& update : engine->Step()) {
      for (const SampledToken& token : update.tokens) {
        outcome.tokens[update.id].push_back(token.id);
      }
    }
  }
  outcome.metrics = engine->metrics();
  return outcome;
}

TEST(DraftModelTest, ChangesNoToken) {
  const GoldenWeights weights("llama");
  const GoldenWeights other("gpt2");  // of the same vocabulary
  for (const double temperature : {0.0, 1.0}) {
    const Outcome plain = Answer(weights, nullptr, temperature, 40);
    const Outcome drafted = Answer(weights, &other, temperature, 40);
    EXPECT_EQ(drafted.tokens, plain.tokens);
    EXPECT_GT(drafted.metrics.proposed_tokens, 0);
    EXPECT_LT(drafted.metrics.accepted_tokens, drafted.metrics.proposed_tokens);
    // With hardly a cache, sequences lose their places, and begin again.
    const Outcome tight = Answer(weights, &other, temperature, 40, /*cache_blocks=*/7);
    EXPECT_EQ(tight.tokens, plain.tokens);
    EXPECT_GT(tight.metrics.preemptions, 0);
  }
}

TEST(DraftModelTest, AModelForeseesItself) {
  const GoldenWeights weights("qwen3");
  for (const double temperature : {0.0, 1.0}) {
    const Outcome plain = Answer(weights, nullptr, temperature, 4);
    const Outcome drafted = Answer(weights, &weights, temperature, 4);
    EXPECT_EQ(drafted.tokens, plain.tokens);
    EXPECT_GT(drafted.metrics.proposed_tokens, 0);
    EXPECT_EQ(drafted.metrics.accepted_tokens, drafted.metrics.proposed_tokens);
    EXPECT_LT(drafted.metrics.steps, plain.metrics.steps);
  }
}

// The shares of tokens that follow one prompt, over many seeds, are the model's probabilities.
TEST(DraftModelTest, DrawsFromTheModelsDistribution) {
  const GoldenWeights weights("llama");
  const GoldenWeights other("gpt2");
  ServingConfig config = GoldenServing(weights);
  config.draft = {other.model(), other.format(), /*tokens=*/4};
  const std::unique_ptr<Engine> engine = MakeEngine(config, weights, &other);
  constexpr int64_t kDraws = 3000;
  std::map<int32_t, std::map<int32_t, int64_t>> seconds;  // by the first token
  std::map<int32_t, std::map<int32_t, double>> expected;  // probabilities, where they were told
  const std::vector<int32_t> text = weights.Tokens(0);
  std::map<RequestId, std::vector<SampledToken>> answers;
  for (int64_t i = 0; i < kDraws; ++i) {
    GenerationRequest request;
    request.prompt = {text.begin(), text.begin() + 6};
    request.max_tokens = 4;
    request.sampling.temperature = 1.0;
    request.sampling.seed = static_cast<uint64_t>(1000 + i);
    request.sampling.log_probabilities = 5;
    engine->AddRequest(request);
    if (i % 100 != 99) continue;
    while (engine->HasWork()) {
      for (RequestUpdate& update : engine->Step()) {
        for (SampledToken& token : update.tokens) answers[update.id].push_back(std::move(token));
      }
    }
  }
  ASSERT_GT(engine->metrics().accepted_tokens, 0);
  for (const auto& [id, tokens] : answers) {
    ASSERT_EQ(tokens.size(), 4u);
    ++seconds[tokens[0].id][tokens[1].id];
    for (const auto& [token, log_probability] : tokens[1].likeliest) {
      expected[tokens[0].id][token] = std::exp(static_cast<double>(log_probability));
    }
  }
  // Of the first token that came most often: the second one's shares within 4.5 deviations.
  const auto most = std::ranges::max_element(seconds, {}, [](const auto& each) {
    int64_t count = 0;
    for (const auto& [token, times] : each.second) count += times;
    return count;
  });
  int64_t count = 0;
  for (const auto& [token, times] : most->second) count += times;
  ASSERT_GT(count, 100);
  for (const auto& [token, probability] : expected[most->first]) {
    const double share = static_cast<double>(most->second[token]) / static_cast<double>(count);
    const double deviation =
        std::sqrt(probability * (1 - probability) / static_cast<double>(count));
    EXPECT_NEAR(share, probability, 4.5 * deviation) << "token " << token;
  }
}

TEST(DraftModelTest, NeedsTheSameVocabulary) {
  const GoldenWeights weights("llama");
  ServingConfig config = GoldenServing(weights);
  class Wider final : public WeightSource {
   public:
    explicit Wider(const GoldenWeights& weights) : weights_(weights), model_(weights.model()) {
      model_.vocab_size = 64;
    }
    const ModelConfig& model() const override { return model_; }
    void Read(const TensorSlice& slice) const override { weights_.Read(slice); }
    const std::map<std::string, std::vector<float>>& buffers() const override {
      return weights_.buffers();
    }

   private:
    const GoldenWeights& weights_;
    ModelConfig model_;
  };
  const Wider wider(weights);
  config.draft = {wider.model(), wider.format(), /*tokens=*/4};
  EXPECT_THROW(MakeEngine(config, weights, &wider), InfeasibleError);
}

}  // namespace
}  // namespace trimtab
