// Replicas answer as one engine does.
#include "engine/infer/replicas/replicas.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <condition_variable>
#include <map>
#include <mutex>
#include <set>
#include <thread>
#include <utility>

#include "engine/base/error.h"
#include "engine/infer/replicas/make_engine.h"
#include "tests/engine/infer/golden_requests.h"

namespace trimtab {
namespace {

using Answers = std::map<RequestId, std::vector<int32_t>>;

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

struct Apart {
  const char* layout;
  int64_t prefill;
  DType cache = DType::kF32;
  bool draft = false;
};

class PrefillApartTest : public testing::TestWithParam<Apart> {};

// Whoever computes a prompt, the answer is the same; also where those who go on have hardly a
// cache.
TEST_P(PrefillApartTest, AnswersAsOneEngine) {
  const Apart& of = GetParam();
  const GoldenWeights weights("qwen2");
  ServingConfig config = GoldenServing(weights);
  config.cache = of.cache;
  const auto expected = AnswerAll(weights, *MakeEngine(config, weights), 30);
  config.layout = ParseLayout(of.layout, 0);
  config.prefill = of.prefill;
  if (of.draft) config.draft = {weights.model(), weights.format(), /*tokens=*/3};
  for (const int64_t blocks : {0, 7}) {
    config.cache_blocks = blocks;
    config.limits.sequence_length = 24;
    const std::unique_ptr<Engine> engine =
        MakeEngine(config, weights, of.draft ? &weights : nullptr);
    EXPECT_EQ(engine->limits().sequences,
              (config.layout.dp - of.prefill) * config.limits.sequences);
    EXPECT_EQ(AnswerAll(weights, *engine, 30), expected) << blocks << " blocks";
    // All but those whose answer is a token are gone on with by another.
    const EngineMetrics metrics = engine->metrics();
    EXPECT_EQ(metrics.finished_requests, 30);
    EXPECT_EQ(metrics.moved_requests, 30);
    EXPECT_EQ(metrics.running + metrics.waiting, 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Layouts, PrefillApartTest,
                         testing::Values(Apart{"dp=2", 1}, Apart{"dp=3", 1}, Apart{"dp=3", 2},
                                         Apart{"dp=2,tp=2", 1}, Apart{"dp=2,pp=2", 1},
                                         Apart{"dp=2", 1, DType::kF8E4M3},
                                         Apart{"dp=2", 1, DType::kI8},
                                         Apart{"dp=2", 1, DType::kF32, true}));

TEST(PrefillApart, BlocksAreFreeInTheEnd) {
  const GoldenWeights weights("llama");
  ServingConfig config = GoldenServing(weights);
  config.layout = ParseLayout("dp=2", 0);
  config.prefill = 1;
  config.cache_blocks = 9;
  config.model.max_sequence_length = config.limits.sequence_length = 32;
  const std::unique_ptr<Engine> engine = MakeEngine(config, weights);
  std::set<RequestId> open;
  for (int64_t i = 0; i < 60; ++i) {
    open.insert(std::get<RequestId>(engine->AddRequest(RequestOf(weights, i))));
    for (const RequestUpdate& update : engine->Step()) {
      if (update.finish != FinishReason::kNone) open.erase(update.id);
    }
    // One whose prompt waits, one that moves or one that goes on: whatever it is at.
    if (i % 3 == 2 && !open.empty()) {
      const RequestId id = i % 2 == 0 ? *open.begin() : *open.rbegin();
      EXPECT_TRUE(engine->Abort(id));
      open.erase(id);
    }
  }
  while (engine->HasWork()) engine->Step();
  // Who was told last to let go may be about to.
  while (engine->metrics().used_blocks > 0) std::this_thread::yield();
  EXPECT_EQ(engine->metrics().running + engine->metrics().waiting, 0);
}

TEST(PrefillApart, LeavesSomebodyToGoOn) {
  const GoldenWeights weights("llama");
  ServingConfig config = GoldenServing(weights);
  config.prefill = 1;
  EXPECT_THROW(MakeEngine(config, weights), InfeasibleError);
}

/// What fake engines and their test tell each other.
struct Workshop {
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<int64_t> requests = std::vector<int64_t>(3);  // that each engine was given
  std::set<size_t> held;                                    // engines whose steps do not end
  bool breaks = false;                                      // steps throw

  void Release() {
    const std::lock_guard lock(mutex);
    held.clear();
    changed.notify_all();
  }
};

/// Answers every request with one token, in a step that lasts as long as the workshop says.
class FakeEngine final : public DisaggregatedEngine {
 public:
  FakeEngine(Workshop& workshop, size_t place) : workshop_(workshop), place_(place) {
    limits_ = {.sequences = 2, .waiting = 2, .sequence_length = 8};
  }

  std::variant<RequestId, Refusal> AddRequest(GenerationRequest) override {
    const std::lock_guard lock(workshop_.mutex);
    ++workshop_.requests[place_];
    workshop_.changed.notify_all();
    ++metrics_.waiting;
    ids_.push_back(++last_);
    return last_;
  }
  std::vector<RequestUpdate> Step() override {
    std::unique_lock lock(workshop_.mutex);
    workshop_.changed.wait(lock, [this] { return !workshop_.held.contains(place_); });
    if (workshop_.breaks) throw EnvironmentError("a wheel came off");
    std::vector<RequestUpdate> updates;
    for (const RequestId id : std::exchange(ids_, {})) {
      updates.push_back({.id = id, .tokens = {{.id = 3}}, .finish = FinishReason::kLength});
      --metrics_.waiting;
      ++metrics_.finished_requests;
    }
    ++metrics_.steps;
    return updates;
  }
  bool Abort(RequestId id) override {
    const std::lock_guard lock(workshop_.mutex);
    const auto erased = static_cast<int64_t>(std::erase(ids_, id));
    metrics_.waiting -= erased;
    metrics_.aborted_requests += erased;
    workshop_.changed.notify_all();
    return erased > 0;
  }
  bool HasWork() const override { return !ids_.empty(); }
  std::vector<TransferredSequence> TakePrefilled() override { return {}; }
  void ReleaseBlocksOf(RequestId) override {}
  RequestId AddPrefilled(TransferredSequence) override { return ++last_; }
  std::vector<PinnedBlocks> TakeReleasable() override { return {}; }
  EngineMetrics metrics() const override { return metrics_; }
  const EngineLimits& limits() const override { return limits_; }
  int64_t vocab_size() const override { return 7; }

 private:
  Workshop& workshop_;
  size_t place_;
  RequestId last_ = 0;
  std::vector<RequestId> ids_;
  EngineMetrics metrics_;
  EngineLimits limits_;
};

class FakeReplicasTest : public testing::Test {
 protected:
  FakeReplicasTest() {
    for (size_t i = 0; i < 3; ++i) {
      engines_.push_back(std::make_unique<FakeEngine>(workshop_, i));
      workshop_.held.insert(i);
    }
    replicas_ = std::make_unique<Replicas>(std::move(engines_));
  }
  ~FakeReplicasTest() override { workshop_.Release(); }

  RequestId Add() { return std::get<RequestId>(replicas_->AddRequest({.prompt = {1}})); }

  void AwaitRequests(const std::vector<int64_t>& of_each) {
    std::unique_lock lock(workshop_.mutex);
    workshop_.changed.wait(lock, [&] { return workshop_.requests == of_each; });
  }

  /// Until so many requests have been answered.
  std::vector<RequestId> Answered(size_t count) {
    std::vector<RequestId> ids;
    while (ids.size() < count) {
      for (const RequestUpdate& update : replicas_->Step()) {
        EXPECT_EQ(update.tokens.size(), 1u);
        if (update.finish != FinishReason::kNone) ids.push_back(update.id);
      }
    }
    std::ranges::sort(ids);
    return ids;
  }

  Workshop workshop_;
  std::vector<std::unique_ptr<DisaggregatedEngine>> engines_;
  std::unique_ptr<Replicas> replicas_;
};

// The first replica takes a step that does not end; requests of the others come and go meanwhile.
TEST_F(FakeReplicasTest, ALongStepHoldsUpNobodyElse) {
  const RequestId slow = Add();
  AwaitRequests({1, 0, 0});
  {
    const std::lock_guard lock(workshop_.mutex);
    workshop_.held = {0};
  }
  for (int i = 0; i < 5; ++i) {
    const RequestId a = Add();
    const RequestId b = Add();
    EXPECT_EQ(Answered(2), (std::vector<RequestId>{a, b}));
  }
  EXPECT_TRUE(replicas_->HasWork());
  EXPECT_EQ(replicas_->metrics().finished_requests, 10);
  EXPECT_TRUE(replicas_->Step().empty());
  workshop_.Release();
  EXPECT_EQ(Answered(1), std::vector<RequestId>{slow});
  EXPECT_FALSE(replicas_->HasWork());
  EXPECT_EQ(replicas_->metrics().finished_requests, 11);
  EXPECT_EQ(replicas_->metrics().waiting, 0);
}

TEST_F(FakeReplicasTest, ShareRequestsOutAndForgetThem) {
  EXPECT_FALSE(replicas_->HasWork());
  std::vector<RequestId> ids;
  for (int i = 0; i < 3; ++i) ids.push_back(Add());
  AwaitRequests({1, 1, 1});
  for (int i = 0; i < 3; ++i) ids.push_back(Add());  // these wait for the steps to end
  EXPECT_EQ(replicas_->metrics().waiting, 6);
  const auto refused = replicas_->AddRequest({.prompt = {1}});
  EXPECT_EQ(std::get<Refusal>(refused).reason, "2 requests wait already");
  EXPECT_TRUE(std::get<Refusal>(refused).busy);
  EXPECT_FALSE(std::get<Refusal>(replicas_->AddRequest({.prompt = {7}})).busy);
  EXPECT_FALSE(replicas_->Abort(-1));
  EXPECT_TRUE(replicas_->Abort(ids[4]));
  EXPECT_FALSE(replicas_->Abort(ids[4]));
  EXPECT_TRUE(replicas_->Abort(ids[2]));
  workshop_.Release();
  EXPECT_EQ(Answered(4), (std::vector<RequestId>{ids[0], ids[1], ids[3], ids[5]}));
  EXPECT_FALSE(replicas_->HasWork());
  EXPECT_EQ(replicas_->metrics().refused_requests, 2);
}

TEST_F(FakeReplicasTest, TellOfFailures) {
  Add();
  {
    const std::lock_guard lock(workshop_.mutex);
    workshop_.breaks = true;
  }
  workshop_.Release();
  const auto serve = [this] {
    while (replicas_->HasWork()) replicas_->Step();
  };
  EXPECT_THROW(serve(), EnvironmentError);
  EXPECT_THROW(replicas_->Step(), EnvironmentError);
}

}  // namespace
}  // namespace trimtab
