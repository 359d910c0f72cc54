// The scheduler over a model that is only a cache.
#include "engine/infer/scheduler/scheduler.h"

#include <gtest/gtest.h>

#include <fmt/format.h>

#include <cmath>
#include <map>

#include "tests/engine/infer/scheduler_cases.h"

namespace trimtab {
namespace {

class SchedulerTraceTest : public testing::TestWithParam<uint32_t> {};

TEST_P(SchedulerTraceTest, EveryAnswerIsThatOfItsRequestAlone) {
  Trace trace(GetParam());
  const SchedulerOptions& options = trace.options();
  CacheModel model(options);
  const ManualClock clock;
  Scheduler scheduler(options, model, clock);
  std::map<RequestId, Asked> asked;
  int64_t to_come = 30;
  int64_t steps = 0;
  while (to_come > 0 || scheduler.HasWork()) {
    for (int64_t i = trace.Below(4); i > 0 && to_come > 0; --i, --to_come) {
      GenerationRequest request = trace.AnyRequest();
      const auto answer = scheduler.AddRequest(request);
      ASSERT_TRUE(std::holds_alternative<RequestId>(answer)) << std::get<Refusal>(answer).reason;
      asked[std::get<RequestId>(answer)].request = request;
    }
    if (trace.Below(20) == 0 && !asked.empty()) {
      const RequestId id = asked.begin()->first + trace.Below(std::ssize(asked));
      const auto found = asked.find(id);
      const bool open = found != asked.end() && found->second.finish == FinishReason::kNone;
      EXPECT_EQ(scheduler.Abort(id), open);
      if (open) asked.erase(found);
    }
    const EngineMetrics before = scheduler.metrics();
    RequestId last = 0;
    for (const RequestUpdate& update : scheduler.Step()) {
      EXPECT_GT(update.id, last) << "updates are not in the order of the requests";
      last = update.id;
      asked.at(update.id).Take(update);
    }
    const EngineMetrics after = scheduler.metrics();
    EXPECT_LE(after.used_blocks, after.total_blocks);
    EXPECT_LE(after.running, options.limits.sequences);
    if (before.running + before.waiting > 0) {
      EXPECT_GT(after.prompt_tokens + after.generated_tokens + after.finished_requests +
                    after.aborted_requests,
                before.prompt_tokens + before.generated_tokens + before.finished_requests +
                    before.aborted_requests)
          << "a step without progress";
    }
    ASSERT_LT(++steps, 20000) << "somebody starves";
  }
  for (const auto& [id, one] : asked) {
    EXPECT_NE(one.finish, FinishReason::kNone);
    SCOPED_TRACE(fmt::format("request {}", id));
    one.ExpectSameAs(Alone(one.request, options.limits.sequence_length));
  }
  EXPECT_EQ(scheduler.metrics().used_blocks, 0) << "blocks leak";
  EXPECT_EQ(scheduler.metrics().running + scheduler.metrics().waiting, 0);
}

INSTANTIATE_TEST_SUITE_P(Seeds, SchedulerTraceTest, testing::Range(1u, 201u));

class ZeroModel final : public ModelExecutor {
 public:
  std::vector<float> Run(const StepPlan& plan) override {
    return std::vector<float>(static_cast<size_t>(plan.logit_rows() * kVocab));
  }
  BlockContents ReadBlocks(std::span<const int32_t>) override { return {}; }
  void WriteBlocks(std::span<const int32_t>, const BlockContents&) override {}
  int64_t vocab_size() const override { return kVocab; }
};

// Quiet steps, taken at once or some of them, leave the scheduler as steps one by one do.
TEST_P(SchedulerTraceTest, QuietStepsAreStepsThatNeedNoPlan) {
  Trace trace(GetParam());
  SchedulerOptions options = trace.options();
  options.lookup_tokens = 0;
  ZeroModel model;
  const ManualClock clock;
  Scheduler quick(options, model, clock);
  Scheduler slow(options, model, clock);
  int64_t to_come = 30;
  while (to_come > 0 || slow.HasWork()) {
    for (int64_t i = trace.Below(3); i > 0 && to_come > 0; --i, --to_come) {
      GenerationRequest request = trace.Request();
      request.sampling.temperature = 0;
      if (trace.Below(4) > 0) request.stop_tokens.clear();
      quick.AddRequest(request);
      slow.AddRequest(request);
    }
    const SteadySteps quiet = quick.NextSteadySteps();
    const int64_t steps = quiet.steps > 0 ? 1 + trace.Below(quiet.steps) : 1;
    if (quiet.steps > 0) quick.SkipSteadySteps(steps, /*token=*/0);
    for (int64_t step = 0; step < steps; ++step) {
      const std::vector<RequestUpdate> updates = slow.Step();
      if (quiet.steps == 0) {
        const std::vector<RequestUpdate> same = quick.Step();
        ASSERT_EQ(same.size(), updates.size());
        for (size_t i = 0; i < same.size(); ++i) {
          EXPECT_EQ(same[i].id, updates[i].id);
          EXPECT_EQ(same[i].finish, updates[i].finish);
        }
        continue;
      }
      ASSERT_EQ(updates.size(), quiet.sequences.size());
      for (size_t i = 0; i < updates.size(); ++i) {
        EXPECT_EQ(updates[i].id, quiet.sequences[i].id);
        EXPECT_EQ(updates[i].finish, FinishReason::kNone);
        EXPECT_EQ(updates[i].tokens.size(), 1u);
      }
    }
    const EngineMetrics a = quick.metrics();
    const EngineMetrics b = slow.metrics();
    for (const auto figure :
         {&EngineMetrics::steps, &EngineMetrics::prompt_tokens, &EngineMetrics::cached_tokens,
          &EngineMetrics::generated_tokens, &EngineMetrics::finished_requests,
          &EngineMetrics::preemptions, &EngineMetrics::running, &EngineMetrics::waiting,
          &EngineMetrics::used_blocks}) {
      ASSERT_EQ(a.*figure, b.*figure);
    }
  }
}

// A sequence alone goes on in one leap to the step before its last one.
TEST(SchedulerTest, NothingDisturbsALoneSequence) {
  SchedulerOptions options = {.block_size = 4, .blocks = 40};
  options.limits = {.sequences = 4, .tokens_per_step = 16, .sequence_length = 64};
  ZeroModel model;
  const ManualClock clock;
  Scheduler scheduler(options, model, clock);
  scheduler.AddRequest({.prompt = {1, 2, 3}, .max_tokens = 20});
  EXPECT_EQ(scheduler.NextSteadySteps().steps, 0);  // its prompt is to come
  scheduler.Step();
  const SteadySteps quiet = scheduler.NextSteadySteps();
  EXPECT_EQ(quiet.steps, 18);
  ASSERT_EQ(quiet.sequences.size(), 1u);
  EXPECT_EQ(quiet.sequences[0].position, 3);
  scheduler.SkipSteadySteps(18, 0);
  EXPECT_EQ(scheduler.NextSteadySteps().steps, 0);
  EXPECT_EQ(scheduler.Step().at(0).finish, FinishReason::kLength);
}

SchedulerOptions Roomy() {
  SchedulerOptions options = {.block_size = 4, .blocks = 40};
  options.limits = {.sequences = 4, .tokens_per_step = 16, .waiting = 2, .sequence_length = 32};
  return options;
}

std::string ReasonOf(Scheduler& scheduler, const GenerationRequest& request) {
  const auto answer = scheduler.AddRequest(request);
  return std::holds_alternative<Refusal>(answer) ? std::get<Refusal>(answer).reason : "";
}

TEST(SchedulerTest, ScoresOfAPromptAreThoseOfItsTokens) {
  SchedulerOptions options = {.block_size = 4, .blocks = 8};
  options.limits = {.sequences = 2, .tokens_per_step = 16, .sequence_length = 24};
  CacheModel model(options);
  const ManualClock clock;
  Scheduler scheduler(options, model, clock);
  const std::vector<int32_t> prompt = {3, 1, 4, 1, 5, 2, 6, 5, 3, 5};
  scheduler.AddRequest({.prompt = prompt, .max_tokens = 0, .prompt_log_probabilities = 2});
  std::vector<SampledToken> scored;
  FinishReason finish = FinishReason::kNone;
  while (scheduler.HasWork()) {
    for (const RequestUpdate& update : scheduler.Step()) {
      EXPECT_TRUE(update.tokens.empty());
      scored = update.prompt;
      finish = update.finish;
    }
  }
  EXPECT_EQ(finish, FinishReason::kLength);
  ASSERT_EQ(scored.size(), prompt.size());
  uint64_t hash = 1;
  for (size_t i = 1; i < prompt.size(); ++i) {
    hash = Mix(hash, prompt[i - 1]);
    const std::vector<float> logits = LogitsOf(hash);
    double sum = 0;
    for (const float logit : logits) sum += std::exp(logit);
    EXPECT_EQ(scored[i].id, prompt[i]);
    EXPECT_NEAR(scored[i].log_probability, logits[static_cast<size_t>(prompt[i])] - std::log(sum),
                1e-5);
    ASSERT_EQ(scored[i].likeliest.size(), 2u);
    EXPECT_EQ(logits[static_cast<size_t>(scored[i].likeliest[0].first)],
              *std::max_element(logits.begin(), logits.end()));
  }
}

TEST(SchedulerTest, AnEmbeddingIsTheMeanOrTheLastOfTheStates) {
  for (const Pooling pooling : {Pooling::kMean, Pooling::kLast}) {
    SchedulerOptions options = {.block_size = 4, .blocks = 8};
    options.limits = {.sequences = 2, .tokens_per_step = 3, .sequence_length = 24};
    CacheModel model(options);
    const ManualClock clock;
    Scheduler scheduler(options, model, clock);
    const std::vector<int32_t> prompt = {3, 1, 4, 1, 5, 2, 6};
    scheduler.AddRequest({.prompt = prompt, .pooling = pooling});
    std::vector<float> embedding;
    while (scheduler.HasWork()) {
      for (const RequestUpdate& update : scheduler.Step()) embedding = update.embedding;
    }
    std::vector<float> mean(kWidth, 0.0f);
    std::vector<float> last;
    uint64_t hash = 1;
    for (const int32_t token : prompt) {
      hash = Mix(hash, token);
      last = LogitsOf(hash);
      for (size_t i = 0; i < mean.size(); ++i) mean[i] += last[i] / 7;
    }
    ASSERT_EQ(embedding.size(), mean.size());
    for (size_t i = 0; i < mean.size(); ++i) {
      EXPECT_NEAR(embedding[i], pooling == Pooling::kMean ? mean[i] : last[i], 1e-5);
    }
  }
}

TEST(SchedulerTest, RefusesWhatItCannotServe) {
  CacheModel model(Roomy());
  const ManualClock clock;
  Scheduler scheduler(Roomy(), model, clock);
  EXPECT_EQ(ReasonOf(scheduler, {.prompt = {}}),
            "the prompt is empty; expected at least one token");
  EXPECT_EQ(ReasonOf(scheduler, {.prompt = {1}, .max_tokens = 0}),
            "0 new tokens; expected at least 1");
  EXPECT_EQ(ReasonOf(scheduler, {.prompt = std::vector<int32_t>(32, 1)}),
            "the prompt has 32 tokens; expected fewer than 32");
  EXPECT_EQ(ReasonOf(scheduler, {.prompt = {3, 7}}), "token 7 in the prompt; expected 0 to 6");
  EXPECT_EQ(ReasonOf(scheduler, {.prompt = {1}}), "");
  EXPECT_EQ(ReasonOf(scheduler, {.prompt = {2}}), "");
  const auto third = scheduler.AddRequest({.prompt = {3}});
  EXPECT_EQ(std::get<Refusal>(third).reason, "2 requests wait already");
  EXPECT_TRUE(std::get<Refusal>(third).busy);
  EXPECT_EQ(scheduler.metrics().refused_requests, 5);
}

/// A cache whose model cannot answer one text.
class BrokenModel final : public ModelExecutor {
 public:
  BrokenModel(const SchedulerOptions& options, int32_t bad) : model_(options), bad_(bad) {}
  std::vector<float> Run(const StepPlan& plan) override {
    std::vector<float> logits = model_.Run(plan);
    float* row = logits.data();
    for (const PlannedSequence& each : plan.sequences) {
      if (each.logits > 0 && each.tokens.back() == bad_) row[3] = std::nanf("");
      row += each.logits * kVocab;
    }
    return logits;
  }
  BlockContents ReadBlocks(std::span<const int32_t> blocks) override {
    return model_.ReadBlocks(blocks);
  }
  void WriteBlocks(std::span<const int32_t> blocks, const BlockContents& contents) override {
    model_.WriteBlocks(blocks, contents);
  }
  int64_t vocab_size() const override { return kVocab; }

 private:
  CacheModel model_;
  int32_t bad_;
};

TEST(SchedulerTest, EndsOnlyTheRequestWhoseLogitsAreNoNumbers) {
  SchedulerOptions options = Roomy();
  options.limits.waiting = 3;
  const GenerationRequest good = {.prompt = {1, 2, 3}, .max_tokens = 1};
  BrokenModel model(options, 6);
  const SteadyClock clock;
  Scheduler scheduler(options, model, clock);
  scheduler.AddRequest(good);
  scheduler.AddRequest({.prompt = {1, 2, 6}, .max_tokens = 1});
  scheduler.AddRequest(good);
  std::map<RequestId, RequestUpdate> ended;
  while (scheduler.HasWork()) {
    for (const RequestUpdate& update : scheduler.Step()) ended[update.id] = update;
  }
  for (const RequestId id : {1, 3}) {
    EXPECT_EQ(ended[id].finish, FinishReason::kLength);
    EXPECT_EQ(ended[id].tokens.at(0).id, Expected(good, options.limits.sequence_length).at(0));
  }
  EXPECT_EQ(ended[2].finish, FinishReason::kError);
  EXPECT_NE(ended[2].failure.find("not finite numbers"), std::string::npos) << ended[2].failure;
  EXPECT_EQ(scheduler.metrics().used_blocks, 0);
  EXPECT_EQ(scheduler.metrics().finished_requests, 2);
  EXPECT_EQ(scheduler.metrics().aborted_requests, 1);
}

TEST(SchedulerTest, SharesThePrefixOfAPrompt) {
  CacheModel model(Roomy());
  ManualClock clock;
  Scheduler scheduler(Roomy(), model, clock);
  const GenerationRequest request = {.prompt = {1, 2, 3, 4, 5, 6, 1, 2, 3}, .max_tokens = 2};
  scheduler.AddRequest(request);
  while (scheduler.HasWork()) scheduler.Step();
  EXPECT_EQ(scheduler.metrics().prompt_tokens, 9);
  scheduler.AddRequest(request);
  while (scheduler.HasWork()) scheduler.Step();
  // Two whole blocks of four.
  EXPECT_EQ(scheduler.metrics().cached_tokens, 8);
  EXPECT_EQ(scheduler.metrics().prompt_tokens, 10);
}

// The request in front is looked at in every step. Only what was registered since is looked up.
TEST(SchedulerTest, LooksUpThePrefixOfAWaitingRequestOnce) {
  SchedulerOptions options = {.block_size = 4, .blocks = 18};
  options.limits = {.sequences = 4, .tokens_per_step = 80, .sequence_length = 72};
  CacheModel model(options);
  const ManualClock clock;
  Scheduler scheduler(options, model, clock);
  GenerationRequest request;
  request.max_tokens = 24;
  for (int32_t i = 0; i < 40; ++i) request.prompt.push_back(i * i % 5);
  scheduler.AddRequest(request);
  scheduler.Step();
  request.prompt.resize(68, 1);  // of 17 blocks, 10 are the other's, and 7 are not free
  request.max_tokens = 2;
  scheduler.AddRequest(request);
  const int64_t before = scheduler.prefix_lookups();
  for (int step = 0; step < 20; ++step) scheduler.Step();
  EXPECT_EQ(scheduler.metrics().waiting, 1);
  EXPECT_EQ(scheduler.metrics().generated_tokens, 21);
  // 10 that are found and one that is not; that one again after each block that was filled.
  EXPECT_LE(scheduler.prefix_lookups() - before, 10 + 1 + 20 / 4);
  while (scheduler.HasWork()) scheduler.Step();
  EXPECT_EQ(scheduler.metrics().cached_tokens, 40);
}

TEST(SchedulerTest, CutsALongPromptAndLetsOthersGoOn) {
  CacheModel model(Roomy());
  ManualClock clock;
  Scheduler scheduler(Roomy(), model, clock);
  scheduler.AddRequest({.prompt = {1}, .max_tokens = 10});
  scheduler.Step();
  scheduler.AddRequest({.prompt = std::vector<int32_t>(30, 2), .max_tokens = 1});
  // 15 of its tokens beside one of the other's, twice.
  EXPECT_EQ(scheduler.Step().size(), 1u);
  EXPECT_EQ(scheduler.Step().size(), 2u);
}

TEST(SchedulerTest, LookedUpTokensSaveSteps) {
  SchedulerOptions options = Roomy();
  const ManualClock clock;
  int64_t steps[2] = {};
  for (const int64_t lookup : {0, 4}) {
    options.lookup_tokens = lookup;
    CacheModel model(options);
    Scheduler scheduler(options, model, clock);
    // The text contains the answer to itself.
    GenerationRequest request = {.prompt = {1, 2, 3}, .max_tokens = 6};
    const std::vector<int32_t> answer = Expected(request, 32);
    request.prompt.insert(request.prompt.end(), answer.begin(), answer.end());
    request.prompt.insert(request.prompt.end(), {1, 2, 3});
    request.max_tokens = 12;
    scheduler.AddRequest(request);
    while (scheduler.HasWork()) scheduler.Step();
    steps[lookup / 4] = scheduler.metrics().steps;
    EXPECT_EQ(scheduler.metrics().generated_tokens, 12);
    EXPECT_LE(scheduler.metrics().accepted_tokens, scheduler.metrics().proposed_tokens);
    EXPECT_EQ(scheduler.metrics().accepted_tokens, 12 - scheduler.metrics().steps);
  }
  EXPECT_LE(steps[1], steps[0]);
}

}  // namespace
}  // namespace trimtab
