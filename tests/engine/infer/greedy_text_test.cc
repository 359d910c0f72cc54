// Greedy text against PyTorch: the whole engine, prompts in chunks, many in one batch.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "engine/infer/replicas/make_engine.h"
#include "tests/engine/infer/golden_weights.h"
#include "tests/engine/infer/serving_layouts.h"
#include "tests/engine/train/families.h"

namespace trimtab {
namespace {

struct Text {
  std::vector<int32_t> prompt;
  std::vector<int32_t> tokens;
};

std::vector<Text> TextsOf(const std::string& family) {
  const nlohmann::json all =
      nlohmann::json::parse(std::ifstream("testdata/goldens/greedy.json")).at(family);
  std::vector<Text> texts;
  for (const auto& each : all) {
    texts.push_back({each.at("prompt").get<std::vector<int32_t>>(),
                     each.at("tokens").get<std::vector<int32_t>>()});
  }
  return texts;
}

class GreedyTextTest : public testing::TestWithParam<std::string> {
 protected:
  /// All the family's prompts at once.
  void ExpectThatOfPyTorch(const ServingConfig& config) {
    const std::unique_ptr<Engine> engine = MakeEngine(config, weights_);
    std::map<RequestId, Text> waited;
    for (const Text& text : TextsOf(GetParam())) {
      if (text.tokens.empty()) continue;
      GenerationRequest request;
      request.prompt = text.prompt;
      request.max_tokens = std::ssize(text.tokens);
      const auto taken = engine->AddRequest(request);
      ASSERT_TRUE(std::holds_alternative<RequestId>(taken));
      waited[std::get<RequestId>(taken)] = text;
    }
    ASSERT_FALSE(waited.empty());
    std::map<RequestId, std::vector<int32_t>> answers;
    while (engine->HasWork()) {
      for (const RequestUpdate& update : engine->Step()) {
        for (const SampledToken& token : update.tokens) answers[update.id].push_back(token.id);
      }
    }
    for (const auto& [id, text] : waited) EXPECT_EQ(answers[id], text.tokens);
  }

  const GoldenWeights weights_{GetParam()};
};

// Prompts whole, and in chunks beside other sequences; room for all, and for hardly one.
TEST_P(GreedyTextTest, IsThatOfPyTorch) {
  for (const int64_t rows : {64, 4}) {
    for (const int64_t blocks : {0, 7}) {
      SCOPED_TRACE(testing::Message() << rows << " rows a step, " << blocks << " blocks");
      ServingConfig config = GoldenServing(weights_);
      config.limits.tokens_per_step = rows;
      config.cache_blocks = blocks;
      config.lookup_tokens = rows == 4 ? 2 : 0;
      ExpectThatOfPyTorch(config);
    }
  }
}

TEST_P(GreedyTextTest, IsThatOfPyTorchInEveryLayout) {
  ServingConfig config = GoldenServing(weights_);
  config.limits.tokens_per_step = 6;
  for (const ServingConfig& each : InEveryLayout(config)) {
    SCOPED_TRACE(ToString(each.layout));
    ExpectThatOfPyTorch(each);
  }
}

INSTANTIATE_TEST_SUITE_P(Families, GreedyTextTest, testing::ValuesIn(FamilyNames()),
                         [](const auto& family) { return family.param; });

}  // namespace
}  // namespace trimtab
