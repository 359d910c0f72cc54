// Replicas answer as one engine does.
#include "engine/infer/replicas.h"

#include <gtest/gtest.h>

#include <map>

#include "engine/base/error.h"
#include "engine/infer/make_engine.h"
#include "tests/engine/infer/golden_weights.h"

namespace trimtab {
namespace {

using Answers = std::map<RequestId, std::vector<int32_t>>;

GenerationRequest RequestOf(const GoldenWeights& weights, int64_t index) {
  const std::vector<int32_t> text = weights.Tokens(index % weights.sequences());
  GenerationRequest request;
  request.prompt = {text.begin(), text.begin() + 2 + index % 7};
  request.max_tokens = 3 + index % 9;
  request.sampling.temperature = 1;
  request.sampling.seed = static_cast<uint64_t>(index);
  return request;
}

/// In the order in which they were asked.
std::vector<std::vector<int32_t>> AnswerAll(const GoldenWeights& weights, Engine& engine,
                                            int64_t count) {
  std::vector<RequestId> ids;
  Answers answers;
  for (int64_t i = 0; i < count || engine.HasWork(); ++i) {
    if (i < count) ids.push_back(std::get<RequestId>(engine.AddRequest(RequestOf(weights, i))));
    RequestId last = -1;
    for (const RequestUpdate& update : engine.Step()) {
      EXPECT_GT(update.id, last);
      last = update.id;
      for (const SampledToken& token : update.tokens) answers[update.id].push_back(token.id);
    }
  }
  std::vector<std::vector<int32_t>> in_order;
  for (const RequestId id : ids) in_order.push_back(answers.at(id));
  return in_order;
}

TEST(ReplicasTest, AnswerAsOneEngine) {
  const GoldenWeights weights("qwen2");
  ServingConfig config = GoldenServing(weights);
  const auto expected = AnswerAll(weights, *MakeEngine(config, weights), 30);
  for (const char* layout : {"dp=2", "dp=3", "dp=2,pp=2"}) {
    config.layout = ParseLayout(layout, 0);
    const std::unique_ptr<Engine> engine = MakeEngine(config, weights);
    EXPECT_EQ(engine->limits().sequences, config.layout.dp * config.limits.sequences);
    EXPECT_EQ(AnswerAll(weights, *engine, 30), expected) << layout;
    EXPECT_EQ(engine->metrics().finished_requests, 30);
    EXPECT_EQ(engine->metrics().running + engine->metrics().waiting, 0);
    EXPECT_EQ(engine->metrics().used_blocks, 0);
  }
}

/// Counts what it is asked; answers nothing.
class CountingEngine final : public Engine {
 public:
  explicit CountingEngine(std::vector<int64_t>& requests, size_t place)
      : requests_(requests), place_(place) {}
  std::variant<RequestId, Refusal> AddRequest(GenerationRequest) override {
    ++requests_[place_];
    return ++metrics_.running;
  }
  std::vector<RequestUpdate> Step() override { throw EnvironmentError("a wheel came off"); }
  bool Abort(RequestId id) override { return id == metrics_.running && metrics_.running-- > 0; }
  bool HasWork() const override { return metrics_.running > 0; }
  EngineMetrics metrics() const override { return metrics_; }
  const EngineLimits& limits() const override { return limits_; }
  int64_t vocab_size() const override { return 7; }

 private:
  std::vector<int64_t>& requests_;
  size_t place_;
  EngineMetrics metrics_;
  EngineLimits limits_;
};

TEST(ReplicasTest, ShareRequestsOutAndTellOfFailures) {
  std::vector<int64_t> requests(3);
  std::vector<std::unique_ptr<Engine>> engines;
  for (size_t i = 0; i < 3; ++i) engines.push_back(std::make_unique<CountingEngine>(requests, i));
  Replicas replicas(std::move(engines));
  EXPECT_FALSE(replicas.HasWork());
  std::vector<RequestId> ids;
  for (int i = 0; i < 7; ++i) ids.push_back(std::get<RequestId>(replicas.AddRequest({})));
  EXPECT_EQ(requests, (std::vector<int64_t>{3, 2, 2}));
  EXPECT_FALSE(replicas.Abort(ids[0]));  // no longer the last of its replica
  EXPECT_TRUE(replicas.Abort(ids[5]));
  EXPECT_FALSE(replicas.Abort(-1));
  replicas.AddRequest({});
  EXPECT_EQ(requests, (std::vector<int64_t>{3, 2, 3}));
  EXPECT_THROW(replicas.Step(), EnvironmentError);
}

}  // namespace
}  // namespace trimtab
