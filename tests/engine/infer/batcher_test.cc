// The batcher over a model that is only a cache: what it answers depends on every token that it
// finds there, so a block in the wrong place, or given to two sequences, shows in the text.
#include "engine/infer/batcher.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

#include "engine/base/units.h"

namespace trimtab {
namespace {

constexpr int64_t kVocab = 7;

class ManualClock final : public Clock {
 public:
  double Now() const override { return now; }
  double now = 0;
};

uint64_t Mix(uint64_t hash, int32_t token) {
  return (hash ^ static_cast<uint64_t>(token + 1)) * 0x9e3779b97f4a7c15u;
}

/// Logits of the token that follows a text of this hash.
std::vector<float> LogitsOf(uint64_t hash) {
  std::vector<float> logits;
  for (int64_t id = 0; id < kVocab; ++id) {
    logits.push_back(static_cast<float>((hash >> (8 * id)) & 0xff) / 64.0f);
  }
  return logits;
}

class CacheModel final : public StepRunner {
 public:
  explicit CacheModel(const BatcherOptions& options)
      : options_(options), slots_(static_cast<size_t>(options.blocks * options.block_size), -1) {}

  std::vector<float> Run(const StepPlan& plan) override {
    EXPECT_LE(plan.rows(), options_.limits.tokens_per_step);
    EXPECT_LE(std::ssize(plan.sequences), options_.limits.sequences);
    for (const PlannedSequence& each : plan.sequences) {
      for (int64_t i = 0; i < std::ssize(each.tokens); ++i) {
        Slot(each, each.first_position + i) = each.tokens[static_cast<size_t>(i)];
      }
    }
    std::vector<float> logits;
    for (const PlannedSequence& each : plan.sequences) {
      const int64_t end = each.first_position + std::ssize(each.tokens);
      uint64_t hash = 1;
      for (int64_t position = 0; position < end; ++position) {
        hash = Mix(hash, Slot(each, position));
        if (position < end - each.logits) continue;
        const std::vector<float> row = LogitsOf(hash);
        logits.insert(logits.end(), row.begin(), row.end());
      }
    }
    return logits;
  }
  int64_t vocab_size() const override { return kVocab; }

 private:
  int32_t& Slot(const PlannedSequence& sequence, int64_t position) {
    const int64_t block = sequence.blocks.at(static_cast<size_t>(position / options_.block_size));
    return slots_.at(
        static_cast<size_t>(block * options_.block_size + position % options_.block_size));
  }

  BatcherOptions options_;
  std::vector<int32_t> slots_;
};

/// What a request brings when it is alone in the world.
std::vector<int32_t> Expected(const GenerationRequest& request, int64_t longest) {
  BatcherOptions options = {.block_size = longest, .blocks = 1};
  options.limits = {.sequences = 1, .tokens_per_step = longest, .sequence_length = longest};
  CacheModel model(options);
  const SteadyClock clock;
  Batcher batcher(options, model, clock);
  batcher.AddRequest(request);
  std::vector<int32_t> tokens;
  while (batcher.HasWork()) {
    for (const RequestUpdate& update : batcher.Step()) {
      for (const SampledToken& token : update.tokens) tokens.push_back(token.id);
    }
  }
  return tokens;
}

class Trace {
 public:
  explicit Trace(uint32_t seed) : random_(seed) {
    options_.limits.sequences = Below(6) + 1;
    options_.limits.tokens_per_step = options_.limits.sequences + Below(20);
    options_.limits.sequence_length = 12 + Below(30);
    options_.block_size = Below(7) + 1;
    const int64_t least = CeilDiv(options_.limits.sequence_length, options_.block_size);
    options_.blocks = least + Below(2 * least);  // too few for all, often
    options_.prefix_cache = Below(3) > 0;
    options_.lookup_tokens = Below(2) * Below(5);
  }

  GenerationRequest Request() {
    GenerationRequest request;
    // A few beginnings that many share.
    const auto begin = static_cast<int32_t>(Below(3));
    const int64_t shared = Below(options_.limits.sequence_length / 2);
    for (int64_t i = 0; i < shared; ++i) {
      request.prompt.push_back(static_cast<int32_t>((begin + i * i) % kVocab));
    }
    const int64_t own = 1 + Below(options_.limits.sequence_length / 2 - 1);
    for (int64_t i = 0; i < own; ++i) request.prompt.push_back(static_cast<int32_t>(Below(kVocab)));
    request.max_tokens = 1 + Below(25);
    request.sampling.temperature = static_cast<double>(Below(2));
    request.sampling.seed = random_();
    if (Below(3) == 0) request.stop_tokens.push_back(static_cast<int32_t>(Below(kVocab)));
    return request;
  }

  int64_t Below(int64_t bound) {
    return static_cast<int64_t>(random_() % static_cast<uint32_t>(std::max<int64_t>(1, bound)));
  }
  const BatcherOptions& options() const { return options_; }

 private:
  std::mt19937 random_;
  BatcherOptions options_;
};

struct Asked {
  GenerationRequest request;
  std::vector<int32_t> tokens;
  FinishReason finish = FinishReason::kNone;
};

class BatcherTraceTest : public testing::TestWithParam<uint32_t> {};

TEST_P(BatcherTraceTest, EveryTextIsThatOfItsRequestAlone) {
  Trace trace(GetParam());
  const BatcherOptions& options = trace.options();
  CacheModel model(options);
  const ManualClock clock;
  Batcher batcher(options, model, clock);
  std::map<RequestId, Asked> asked;
  int64_t to_come = 30;
  int64_t steps = 0;
  while (to_come > 0 || batcher.HasWork()) {
    for (int64_t i = trace.Below(4); i > 0 && to_come > 0; --i, --to_come) {
      GenerationRequest request = trace.Request();
      const auto answer = batcher.AddRequest(request);
      ASSERT_TRUE(std::holds_alternative<RequestId>(answer));
      asked[std::get<RequestId>(answer)].request = request;
    }
    if (trace.Below(20) == 0 && !asked.empty()) {
      const RequestId id = asked.begin()->first + trace.Below(std::ssize(asked));
      const auto found = asked.find(id);
      const bool open = found != asked.end() && found->second.finish == FinishReason::kNone;
      EXPECT_EQ(batcher.Abort(id), open);
      if (open) asked.erase(found);
    }
    const EngineMetrics before = batcher.metrics();
    RequestId last = 0;
    for (const RequestUpdate& update : batcher.Step()) {
      EXPECT_GT(update.id, last) << "updates are not in the order of the requests";
      last = update.id;
      Asked& one = asked.at(update.id);
      EXPECT_EQ(one.finish, FinishReason::kNone) << "goes on after its end";
      for (const SampledToken& token : update.tokens) one.tokens.push_back(token.id);
      one.finish = update.finish;
    }
    const EngineMetrics after = batcher.metrics();
    EXPECT_LE(after.used_blocks, after.total_blocks);
    if (before.running + before.waiting > 0) {
      EXPECT_GT(after.prompt_tokens + after.generated_tokens + after.finished_requests,
                before.prompt_tokens + before.generated_tokens + before.finished_requests)
          << "a step without progress";
    }
    ASSERT_LT(++steps, 20000) << "somebody starves";
  }
  for (const auto& [id, one] : asked) {
    EXPECT_NE(one.finish, FinishReason::kNone);
    EXPECT_EQ(one.tokens, Expected(one.request, options.limits.sequence_length))
        << "request " << id;
  }
  EXPECT_EQ(batcher.metrics().used_blocks, 0) << "blocks leak";
  EXPECT_EQ(batcher.metrics().running + batcher.metrics().waiting, 0);
}

INSTANTIATE_TEST_SUITE_P(Seeds, BatcherTraceTest, testing::Range(1u, 201u));

class ZeroModel final : public StepRunner {
 public:
  std::vector<float> Run(const StepPlan& plan) override {
    return std::vector<float>(static_cast<size_t>(plan.logit_rows() * kVocab));
  }
  int64_t vocab_size() const override { return kVocab; }
};

// Quiet steps, taken at once or some of them, leave the batcher as steps one by one do.
TEST_P(BatcherTraceTest, QuietStepsAreStepsThatNeedNoPlan) {
  Trace trace(GetParam());
  BatcherOptions options = trace.options();
  options.lookup_tokens = 0;
  ZeroModel model;
  const ManualClock clock;
  Batcher quick(options, model, clock);
  Batcher slow(options, model, clock);
  int64_t to_come = 30;
  while (to_come > 0 || slow.HasWork()) {
    for (int64_t i = trace.Below(3); i > 0 && to_come > 0; --i, --to_come) {
      GenerationRequest request = trace.Request();
      request.sampling.temperature = 0;
      if (trace.Below(4) > 0) request.stop_tokens.clear();
      quick.AddRequest(request);
      slow.AddRequest(request);
    }
    const QuietSteps quiet = quick.ComingQuietSteps();
    const int64_t steps = quiet.steps > 0 ? 1 + trace.Below(quiet.steps) : 1;
    if (quiet.steps > 0) quick.TakeQuietSteps(steps, /*token=*/0);
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
TEST(BatcherTest, NothingDisturbsALoneSequence) {
  BatcherOptions options = {.block_size = 4, .blocks = 40};
  options.limits = {.sequences = 4, .tokens_per_step = 16, .sequence_length = 64};
  ZeroModel model;
  const ManualClock clock;
  Batcher batcher(options, model, clock);
  batcher.AddRequest({.prompt = {1, 2, 3}, .max_tokens = 20});
  EXPECT_EQ(batcher.ComingQuietSteps().steps, 0);  // its prompt is to come
  batcher.Step();
  const QuietSteps quiet = batcher.ComingQuietSteps();
  EXPECT_EQ(quiet.steps, 18);
  ASSERT_EQ(quiet.sequences.size(), 1u);
  EXPECT_EQ(quiet.sequences[0].position, 3);
  batcher.TakeQuietSteps(18, 0);
  EXPECT_EQ(batcher.ComingQuietSteps().steps, 0);
  EXPECT_EQ(batcher.Step().at(0).finish, FinishReason::kLength);
}

BatcherOptions Roomy() {
  BatcherOptions options = {.block_size = 4, .blocks = 40};
  options.limits = {.sequences = 4, .tokens_per_step = 16, .waiting = 2, .sequence_length = 32};
  return options;
}

std::string ReasonOf(Batcher& batcher, const GenerationRequest& request) {
  const auto answer = batcher.AddRequest(request);
  return std::holds_alternative<Refusal>(answer) ? std::get<Refusal>(answer).reason : "";
}

TEST(BatcherTest, RefusesWhatItCannotServe) {
  CacheModel model(Roomy());
  const ManualClock clock;
  Batcher batcher(Roomy(), model, clock);
  EXPECT_EQ(ReasonOf(batcher, {.prompt = {}}), "the prompt is empty; expected at least one token");
  EXPECT_EQ(ReasonOf(batcher, {.prompt = {1}, .max_tokens = 0}),
            "0 new tokens; expected at least 1");
  EXPECT_EQ(ReasonOf(batcher, {.prompt = std::vector<int32_t>(32, 1)}),
            "a prompt of 32 tokens; expected fewer than 32");
  EXPECT_EQ(ReasonOf(batcher, {.prompt = {3, 7}}), "token 7 in the prompt; expected 0 to 6");
  EXPECT_EQ(ReasonOf(batcher, {.prompt = {1}}), "");
  EXPECT_EQ(ReasonOf(batcher, {.prompt = {2}}), "");
  const auto third = batcher.AddRequest({.prompt = {3}});
  EXPECT_EQ(std::get<Refusal>(third).reason, "2 requests wait already");
  EXPECT_TRUE(std::get<Refusal>(third).busy);
  EXPECT_EQ(batcher.metrics().refused_requests, 5);
}

TEST(BatcherTest, SharesThePrefixOfAPrompt) {
  CacheModel model(Roomy());
  ManualClock clock;
  Batcher batcher(Roomy(), model, clock);
  const GenerationRequest request = {.prompt = {1, 2, 3, 4, 5, 6, 1, 2, 3}, .max_tokens = 2};
  batcher.AddRequest(request);
  while (batcher.HasWork()) batcher.Step();
  EXPECT_EQ(batcher.metrics().prompt_tokens, 9);
  batcher.AddRequest(request);
  while (batcher.HasWork()) batcher.Step();
  // Two whole blocks of four.
  EXPECT_EQ(batcher.metrics().cached_tokens, 8);
  EXPECT_EQ(batcher.metrics().prompt_tokens, 10);
}

TEST(BatcherTest, CutsALongPromptAndLetsOthersGoOn) {
  CacheModel model(Roomy());
  ManualClock clock;
  Batcher batcher(Roomy(), model, clock);
  batcher.AddRequest({.prompt = {1}, .max_tokens = 10});
  batcher.Step();
  batcher.AddRequest({.prompt = std::vector<int32_t>(30, 2), .max_tokens = 1});
  clock.now = 5;
  EXPECT_EQ(batcher.longest_wait_s(), 5);
  // 15 of its tokens beside one of the other's, twice.
  EXPECT_EQ(batcher.Step().size(), 1u);
  EXPECT_EQ(batcher.longest_wait_s(), 0);
  EXPECT_EQ(batcher.Step().size(), 2u);
}

TEST(BatcherTest, LookedUpTokensSaveSteps) {
  BatcherOptions options = Roomy();
  const ManualClock clock;
  int64_t steps[2] = {};
  for (const int64_t lookup : {0, 4}) {
    options.lookup_tokens = lookup;
    CacheModel model(options);
    Batcher batcher(options, model, clock);
    // The text contains the answer to itself.
    GenerationRequest request = {.prompt = {1, 2, 3}, .max_tokens = 6};
    const std::vector<int32_t> answer = Expected(request, 32);
    request.prompt.insert(request.prompt.end(), answer.begin(), answer.end());
    request.prompt.insert(request.prompt.end(), {1, 2, 3});
    request.max_tokens = 12;
    batcher.AddRequest(request);
    while (batcher.HasWork()) batcher.Step();
    steps[lookup / 4] = batcher.metrics().steps;
    EXPECT_EQ(batcher.metrics().generated_tokens, 12);
    EXPECT_LE(batcher.metrics().accepted_tokens, batcher.metrics().proposed_tokens);
    EXPECT_EQ(batcher.metrics().accepted_tokens, 12 - batcher.metrics().steps);
  }
  EXPECT_LE(steps[1], steps[0]);
}

}  // namespace
}  // namespace trimtab
