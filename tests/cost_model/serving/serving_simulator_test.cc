// The simulator against schedules worked out by hand.
#include "cost_model/serving/serving_simulator.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "cost_model/serving/serving_prediction.h"
#include "engine/base/error.h"
#include "engine/families/load_config.h"
#include "engine/infer/scheduler/acceptance.h"

namespace trimtab {
namespace {

/// Tenths of a second for a row of a step.
SimulatedPrices TenthPerRow() {
  return {.step = [](const StepPlan& plan) { return 0.1 * static_cast<double>(plan.rows()); }};
}

SchedulerOptions Options(EngineLimits limits, int64_t blocks = 100) {
  if (limits.sequence_length == 0) limits.sequence_length = 64;
  return {.limits = limits, .block_size = 4, .blocks = blocks};
}

void ExpectTimes(const LoadOutcome& outcome, double sent_s, const std::vector<double>& arrivals_s) {
  EXPECT_DOUBLE_EQ(outcome.sent_s, sent_s);
  ASSERT_EQ(outcome.arrivals_s.size(), arrivals_s.size());
  for (size_t i = 0; i < arrivals_s.size(); ++i) {
    EXPECT_NEAR(outcome.arrivals_s[i], arrivals_s[i], 1e-12) << i;
  }
}

// A prompt of 10 in steps of 4 rows: 4, 4, 2 rows; then a row a token.
TEST(SimulateServing, CutsAPromptAndGoesOn) {
  const SimulatedServing served = SimulateServing(Options({.sequences = 2, .tokens_per_step = 4}),
                                                  {{0, 10, 3}}, 0, TenthPerRow());
  ExpectTimes(served.outcomes[0], 0, {1.0, 1.1, 1.2});
  EXPECT_EQ(served.outcomes[0].tokens, 3);
  EXPECT_NEAR(served.busy_s, 1.2, 1e-12);
  EXPECT_EQ(served.most_rows, 4);
  EXPECT_EQ(served.most_blocks, 3);
}

// The second comes while the first one's prompt is computed, and is admitted at the next step. Its
// prompt takes what the first one's token leaves of a step.
TEST(SimulateServing, AdmitsAtTheNextStep) {
  const SimulatedServing served = SimulateServing(Options({.sequences = 2, .tokens_per_step = 4}),
                                                  {{0, 4, 4}, {0.1, 6, 2}}, 0, TenthPerRow());
  // Steps: 4 rows until 0.4; 1 + 3 rows until 0.8; 1 + 3 until 1.2; 1 + 1 until 1.4.
  ExpectTimes(served.outcomes[0], 0, {0.4, 0.8, 1.2, 1.4});
  ExpectTimes(served.outcomes[1], 0.1, {1.2, 1.4});
}

// One place: the second waits until the first is done. Between the two nothing happens.
TEST(SimulateServing, WaitsForAPlaceAndForRequests) {
  const SimulatedServing served =
      SimulateServing(Options({.sequences = 1, .tokens_per_step = 8}),
                      {{0, 2, 2}, {0.1, 3, 1}, {5, 1, 1}}, 0, TenthPerRow());
  ExpectTimes(served.outcomes[0], 0, {0.2, 0.3});
  ExpectTimes(served.outcomes[1], 0.1, {0.6});
  ExpectTimes(served.outcomes[2], 5, {5.1});
  EXPECT_EQ(served.most_running, 1);
}

// Of the 7 tokens that all prompts begin with, the cache finds one block of 4, and never by chance
// the one that the eighth token ends.
TEST(SimulateServing, FindsWholeBlocksThatPromptsShare) {
  std::vector<LoadRequest> requests;
  for (int i = 0; i < 300; ++i) {
    requests.push_back({.at_s = 10.0 * i, .prompt_tokens = 12, .output_tokens = 1});
  }
  ShareBeginnings(7, requests);
  const SimulatedServing served = SimulateServing(
      Options({.sequences = 1, .tokens_per_step = 16}, 2000), requests, 0, TenthPerRow());
  ExpectTimes(served.outcomes[0], 0, {1.2});
  for (size_t i = 1; i < requests.size(); ++i) {
    ExpectTimes(served.outcomes[i], requests[i].at_s, {requests[i].at_s + 0.8});
  }
}

// A client sends its next request when it has its answer, a moment later.
TEST(SimulateServing, ClosedLoopsWaitForTheirAnswers) {
  const SimulatedServing served =
      SimulateServing(Options({.sequences = 4, .tokens_per_step = 8}),
                      {{0, 2, 1}, {0, 3, 2}, {0, 1, 1}}, 2, TenthPerRow());
  // Both prompts until 0.5. The second goes on alone until 0.6; the first client's next request,
  // sent at 0.5 and a moment, is admitted then.
  ExpectTimes(served.outcomes[0], 0, {0.5});
  ExpectTimes(served.outcomes[1], 0, {0.5, 0.6});
  ExpectTimes(served.outcomes[2], 0.5 + kClientTurn, {0.7});
}

// Two sequences of 8 tokens in the end, in a cache of 3 blocks of 4: the later one gives up its
// blocks and computes its tokens again.
TEST(SimulateServing, PreemptsWhereTheCacheIsFull) {
  SchedulerOptions options =
      Options({.sequences = 2, .tokens_per_step = 16, .sequence_length = 8}, 3);
  options.prefix_cache = false;
  const SimulatedServing served =
      SimulateServing(options, {{0, 3, 5}, {0, 3, 5}}, 0, TenthPerRow());
  // Until 0.6 both prompts; 0.8 both have 5 tokens, of which 4 are in the cache; the fifth needs a
  // second block of each, and there is one. The first goes on alone to its end at 1.1; then the
  // second computes its 5 tokens anew until 1.6.
  ExpectTimes(served.outcomes[0], 0, {0.6, 0.8, 0.9, 1.0, 1.1});
  ExpectTimes(served.outcomes[1], 0, {0.6, 0.8, 1.6, 1.7, 1.8});
  EXPECT_EQ(served.metrics.preemptions, 1);
}

// Prompts of 10 that share their first 6: one whole block of 4 is found by the second.
TEST(SimulateServing, FindsWhatPromptsShare) {
  std::vector<LoadRequest> requests = {{0, 10, 1}, {5, 10, 1}};
  ShareBeginnings(6, requests);
  SchedulerOptions options = Options({.sequences = 2, .tokens_per_step = 16});
  const SimulatedServing found = SimulateServing(options, requests, 0, TenthPerRow());
  ExpectTimes(found.outcomes[0], 0, {1.0});
  ExpectTimes(found.outcomes[1], 5, {5.6});
  EXPECT_EQ(found.metrics.cached_tokens, 4);
  options.prefix_cache = false;
  ExpectTimes(SimulateServing(options, requests, 0, TenthPerRow()).outcomes[1], 5, {6.0});
}

// A long prompt in small steps beside an answer: what is not planned step by step comes out the
// same.
TEST(SimulateServing, LeapsToWhatHappensNext) {
  const SimulatedServing served = SimulateServing(Options({.sequences = 2, .tokens_per_step = 4}),
                                                  {{0, 4, 8}, {0.1, 10, 2}}, 0, TenthPerRow());
  // Until 0.4 the first prompt; then steps of 1 + 3 rows, the fourth of 1 + 1.
  ExpectTimes(served.outcomes[0], 0, {0.4, 0.8, 1.2, 1.6, 1.8, 2.0, 2.1, 2.2});
  ExpectTimes(served.outcomes[1], 0.1, {1.8, 2.0});
  EXPECT_EQ(served.metrics.steps, 8);
  EXPECT_EQ(served.metrics.prompt_tokens, 14);
}

/// One request of 2 tokens and 7 of an answer, with two proposed tokens a step that all stand, or
/// none.
SimulatedServing Speculate(double acceptance, bool draft) {
  SchedulerOptions options = Options({.sequences = 1, .tokens_per_step = 8});
  (draft ? options.draft_tokens : options.lookup_tokens) = 2;
  options.acceptance = acceptance;
  SimulatedPrices prices = TenthPerRow();
  prices.draft = [](const StepPlan& plan) { return 0.01 * static_cast<double>(plan.rows()); };
  return SimulateServing(options, {{0, 2, 7}}, 0, prices);
}

TEST(SimulateServing, ProposedTokensComeTogether) {
  const SimulatedServing all = Speculate(1, /*draft=*/false);
  ExpectTimes(all.outcomes[0], 0, {0.2, 0.5, 0.8});
  EXPECT_EQ(all.outcomes[0].tokens, 7);
  EXPECT_EQ(all.metrics.accepted_tokens, 4);
  // With no more than is left of the answer: two, four times; then one, and none.
  const SimulatedServing none = Speculate(0, /*draft=*/false);
  ExpectTimes(none.outcomes[0], 0, {0.2, 0.5, 0.8, 1.1, 1.4, 1.6, 1.7});
  EXPECT_EQ(none.metrics.proposed_tokens, 9);
  EXPECT_EQ(none.metrics.accepted_tokens, 0);
}

TEST(SimulateServing, ADraftModelTakesItsTime) {
  // It is given prompt and first token, then what it proposed first; when all has stood, its last
  // proposal and what the model added; else what was chosen instead.
  const SimulatedServing all = Speculate(1, /*draft=*/true);
  ExpectTimes(all.outcomes[0], 0, {0.2, 0.2 + 0.04 + 0.3, 0.54 + 0.03 + 0.3});
  EXPECT_NEAR(all.draft_s, 0.07, 1e-12);
  EXPECT_NEAR(all.busy_s, 0.87, 1e-12);
  const SimulatedServing none = Speculate(0, /*draft=*/true);
  ExpectTimes(none.outcomes[0], 0, {0.2, 0.54, 0.86, 1.18, 1.5, 1.71, 1.81});
  EXPECT_NEAR(none.draft_s, 0.11, 1e-12);
}

// A step with n proposals brings (1 - a^(n + 1)) / (1 - a) tokens in the mean (Leviathan et al.,
// arXiv:2211.17192, equation 1), and each stands in its turn with a.
TEST(SimulateServing, AsManyTokensStandAsExpected) {
  SchedulerOptions options =
      Options({.sequences = 4, .tokens_per_step = 64, .sequence_length = 2048}, /*blocks=*/2048);
  options.lookup_tokens = 4;
  options.acceptance = 0.7;
  std::vector<LoadRequest> requests(8, {0, 4, 2000});
  for (size_t i = 0; i < requests.size(); ++i) requests[i].seed = i;
  const EngineMetrics metrics = SimulateServing(options, requests, 0, TenthPerRow()).metrics;
  const double runs = 8 * 1999 - static_cast<double>(metrics.accepted_tokens);
  const double expected = (1 - std::pow(0.7, 5)) / (1 - 0.7);
  EXPECT_NEAR(8 * 1999 / runs, expected, 0.02 * expected);
  EXPECT_NEAR(AcceptanceOf(metrics.checked_tokens, metrics.accepted_tokens), 0.7, 0.015);
}

/// The same, and a hundredth of a second for a block that is copied, at either end.
SimulatedPrices WithCopies() {
  SimulatedPrices prices = TenthPerRow();
  prices.copy = [](int64_t blocks) { return 0.01 * static_cast<double>(blocks); };
  return prices;
}

// One engine computes both prompts, one goes on with each when it has come; nobody waits for a
// prompt while his answer goes on.
TEST(SimulateServing, PromptsApartHoldUpNoAnswer) {
  const SimulatedServing served =
      SimulateServing(Options({.sequences = 2, .tokens_per_step = 4}), {{0, 4, 4}, {0.1, 8, 3}}, 0,
                      WithCopies(), {}, {.prefill = 1, .decode = 1});
  // First prompt until 0.4; its block is read until 0.41 and written until 0.42; then a token each
  // tenth, until 0.72. The second prompt from 0.41 to 1.21, read until 1.23 and written until 1.25.
  ExpectTimes(served.outcomes[0], 0, {0.41, 0.52, 0.62, 0.72});
  ExpectTimes(served.outcomes[1], 0.1, {1.23, 1.35, 1.45});
  EXPECT_EQ(served.metrics.moved_requests, 2);
  EXPECT_NEAR(served.copy_s, 0.06, 1e-12);
  EXPECT_NEAR(served.busy_s, 0.4 + 0.8 + 0.5 + 0.06, 1e-12);
}

// A cache of two blocks for prompts: the third waits until the first one's is gone on with, which
// must itself wait for a place.
TEST(SimulateServing, PromptsApartWaitForWhoGoesOn) {
  SchedulerOptions options =
      Options({.sequences = 1, .tokens_per_step = 8, .sequence_length = 8}, /*blocks=*/2);
  const SimulatedServing served = SimulateServing(options, {{0, 4, 3}, {0, 4, 2}, {0, 4, 1}}, 0,
                                                  WithCopies(), {}, {.prefill = 1, .decode = 1});
  // Prompts are admitted with room for a token more, two blocks: one after the other. The first is
  // done and read at 0.41 and moves at once: its blocks are free when it has been copied, with the
  // first step there, at 0.52. The second, read at 0.93, moves likewise until 1.04, the third ends
  // with its prompt.
  ExpectTimes(served.outcomes[0], 0, {0.41, 0.52, 0.62});
  ExpectTimes(served.outcomes[1], 0, {0.93, 1.04});
  ExpectTimes(served.outcomes[2], 0, {1.44});
  EXPECT_EQ(served.most_blocks, 2);
  EXPECT_EQ(served.metrics.used_blocks, 0);
}

// Sequences go to who has the fewest, and clients send again when all of an answer has come.
TEST(SimulateServing, PromptsApartAreSharedOut) {
  const SimulatedServing served = SimulateServing(Options({.sequences = 4, .tokens_per_step = 8}),
                                                  {{0, 2, 3}, {0, 2, 3}, {0, 2, 1}}, 2,
                                                  WithCopies(), {}, {.prefill = 1, .decode = 2});
  // Both prompts in one step until 0.4, read until 0.42; each goes on alone.
  ExpectTimes(served.outcomes[0], 0, {0.42, 0.53, 0.63});
  ExpectTimes(served.outcomes[1], 0, {0.42, 0.53, 0.63});
  ExpectTimes(served.outcomes[2], 0.63 + kClientTurn, {0.83 + kClientTurn});
  EXPECT_EQ(served.most_running, 2);
}

// Whoever watches sees what has come, and may end it.
TEST(SimulateServing, EndsWhenNobodyWantsMore) {
  std::vector<LoadRequest> requests(40, {0, 4, 2});
  int64_t answered = 0;
  const auto watch = [&](double now_s, const std::vector<LoadOutcome>& outcomes,
                         const EngineMetrics& metrics) {
    EXPECT_GT(now_s, 0);
    EXPECT_GT(metrics.steps, 0);
    answered = 0;
    for (const LoadOutcome& each : outcomes) answered += each.tokens == 2 ? 1 : 0;
    return answered < 10;
  };
  const SimulatedServing served = SimulateServing(Options({.sequences = 2, .tokens_per_step = 8}),
                                                  requests, 0, TenthPerRow(), watch);
  EXPECT_FALSE(served.ended);
  EXPECT_GE(answered, 10);
  EXPECT_LT(answered, 20);
}

TEST(SimulateServing, RefusesWhatTheEngineWould) {
  const SimulatedServing served =
      SimulateServing(Options({.sequences = 1, .tokens_per_step = 4, .sequence_length = 8}),
                      {{0, 8, 1}, {0, 2, 1}}, 0, TenthPerRow());
  EXPECT_NE(served.outcomes[0].failure.find("the prompt has 8 tokens"), std::string::npos);
  EXPECT_EQ(served.outcomes[1].tokens, 1);
}

// Requests of a closed loop go where its clients are.
TEST(ShareOf, GivesEachReplicaItsClientsAndTheirRequests) {
  for (const int64_t concurrency : {0, 1, 3, 4, 7}) {
    const int64_t replicas = 4;
    ServiceLoad load = {.requests = {}, .concurrency = concurrency};
    for (int64_t i = 0; i < 84; ++i) load.requests.push_back({.prompt_tokens = i});
    int64_t clients = 0;
    size_t requests = 0;
    for (int64_t i = 0; i < replicas; ++i) {
      const ServiceLoad share = ShareOf(load, replicas, i);
      clients += share.concurrency;
      requests += share.requests.size();
      const int64_t turns = concurrency == 0 ? replicas : concurrency;
      const int64_t its = concurrency == 0 ? 1 : share.concurrency;
      EXPECT_EQ(std::ssize(share.requests), 84 * its / turns) << concurrency;
      std::vector<int64_t> expected;
      for (size_t j = 0; j < load.requests.size(); ++j) {
        if (ReplicaOf(load, replicas, j) == i) expected.push_back(load.requests[j].prompt_tokens);
      }
      std::vector<int64_t> got;
      for (const LoadRequest& each : share.requests) got.push_back(each.prompt_tokens);
      EXPECT_EQ(got, expected);
    }
    EXPECT_EQ(clients, concurrency);
    EXPECT_EQ(requests, load.requests.size());
  }
}

TEST(ServingRatesOf, RefusesBf16OnGpusWithoutIt) {
  const HardwareProfile profile = BuiltinProfile("v100-32gb");
  const ServingEngine& engine = *ServingEngineOf("trimtab", "");
  ServingConfig config;
  config.model = LoadModelConfig("gpt2-124m");
  config.weights = WeightFormat::kF16;
  config.cache = DType::kF16;
  EXPECT_GT(ServingRatesOf(config, profile, engine).rate_16, 0);
  config.cache = DType::kBf16;
  EXPECT_THROW(ServingRatesOf(config, profile, engine), UsageError);
  config.cache = DType::kF16;
  config.weights = WeightFormat::kBf16;
  EXPECT_THROW(ServingRatesOf(config, profile, engine), UsageError);
}

}  // namespace
}  // namespace trimtab
