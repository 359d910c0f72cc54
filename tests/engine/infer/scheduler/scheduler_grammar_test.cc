// Answers that must fit a grammar. That neither neighbours, preemption, look-up nor a handover
// change them is shown by the random traces of scheduler_test and scheduler_handover_test.
#include <gtest/gtest.h>

#include "engine/infer/replicas/replica_messages.h"
#include "engine/infer/scheduler/draft_model.h"
#include "tests/engine/infer/scheduler_cases.h"

namespace trimtab {
namespace {

GenerationRequest RequestFor(const std::string& regex, uint64_t seed = 0) {
  GenerationRequest request;
  request.prompt = {0, 1};
  request.max_tokens = 40;
  request.sampling.temperature = 1;
  request.sampling.seed = seed;
  request.stop_tokens = {kNoText};
  request.grammar =
      std::make_shared<GrammarSource>(GrammarSource{GrammarSource::Kind::kRegex, regex});
  return request;
}

struct Ended {
  std::string text;
  FinishReason finish = FinishReason::kNone;
  std::string failure;
  EngineMetrics metrics;
};

Ended AnswerOf(const GenerationRequest& request, SchedulerOptions options = {}) {
  const std::vector<std::string> bytes = {"a", "b", "[", "ab", "", "ba", "]"};
  options.limits = {.sequences = 1, .tokens_per_step = 60, .sequence_length = 60};
  options.block_size = 60;
  options.blocks = 1;
  CacheModel model(options);
  const SteadyClock clock;
  Scheduler scheduler(options, model, clock);
  EXPECT_TRUE(std::holds_alternative<RequestId>(scheduler.AddRequest(request)));
  Ended ended;
  while (scheduler.HasWork()) {
    for (const RequestUpdate& update : scheduler.Step()) {
      for (const SampledToken& token : update.tokens) {
        ended.text += bytes[static_cast<size_t>(token.id)];
      }
      ended.finish = update.finish;
      ended.failure = update.failure;
    }
  }
  ended.metrics = scheduler.metrics();
  return ended;
}

Ended AnswerOf(const GenerationRequest& request, const std::shared_ptr<GrammarCompiler>& grammars) {
  SchedulerOptions options;
  options.grammars = grammars;
  return AnswerOf(request, options);
}

TEST(SchedulerGrammarTest, AnswersFitAndEndWhereNothingMayFollow) {
  for (uint64_t seed = 0; seed < 40; ++seed) {
    GenerationRequest request = RequestFor("\\[(ab){3}\\]", seed);
    if (seed % 2 == 0) request.stop_tokens.clear();
    if (seed % 3 == 0) request.min_tokens = 30;
    const Ended ended = AnswerOf(request, CaseGrammars());
    EXPECT_EQ(ended.text, "[ababab]");
    EXPECT_EQ(ended.finish, FinishReason::kStop);
  }
}

TEST(SchedulerGrammarTest, StopTokensComeOnlyWhereTheTextMayEnd) {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    const Ended ended = AnswerOf(RequestFor("(\\[b*\\])+", seed), CaseGrammars());
    if (ended.finish != FinishReason::kStop) continue;
    ASSERT_FALSE(ended.text.empty());
    EXPECT_EQ(ended.text.back(), ']');
    // One that is text too.
    GenerationRequest request = RequestFor("\\[b*\\]", seed);
    request.stop_tokens = {1};
    const std::string text = AnswerOf(request, CaseGrammars()).text;
    EXPECT_EQ(text, "[]");
  }
}

TEST(SchedulerGrammarTest, SaysWhyAnAnswerCannotGoOn) {
  const Ended inexpressible = AnswerOf(RequestFor("ax"), CaseGrammars());
  EXPECT_EQ(inexpressible.finish, FinishReason::kError);
  EXPECT_NE(inexpressible.failure.find("no token of the vocabulary"), std::string::npos);
  const Ended broken = AnswerOf(RequestFor("(a"), CaseGrammars());
  EXPECT_EQ(broken.finish, FinishReason::kError);
  EXPECT_NE(broken.failure.find("regex: at character 3: a '(' without a ')'"), std::string::npos);
  const Ended without = AnswerOf(RequestFor("a"), nullptr);
  EXPECT_EQ(without.finish, FinishReason::kError);
  EXPECT_NE(without.failure.find("bytes of its tokens"), std::string::npos);
}

TEST(SchedulerGrammarTest, ADraftProposesWhatTheGrammarAllows) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const GenerationRequest request = RequestFor("(\\[(ab|b)*\\]){1,4}", seed);
    const Ended plain = AnswerOf(request, CaseGrammars());
    SchedulerOptions cache = {.block_size = 60, .blocks = 1};
    cache.limits = {.sequences = 1, .tokens_per_step = 60, .sequence_length = 60};
    CacheModel small(cache);
    DraftModel draft(
        {.sequences = 1, .sequence_length = 60, .block_size = 60, .tokens_per_step = 60}, kVocab,
        small);
    SchedulerOptions options;
    options.grammars = CaseGrammars();
    options.lookup_tokens = 3;  // rows that the model of these tests expects
    options.draft = &draft;
    options.draft_tokens = 3;
    const Ended drafted = AnswerOf(request, options);
    EXPECT_EQ(drafted.text, plain.text);
    EXPECT_EQ(drafted.finish, plain.finish);
    // A model foresees itself, but for the token that ends a text.
    EXPECT_EQ(drafted.metrics.accepted_tokens, drafted.metrics.checked_tokens);
  }
}

TEST(SchedulerGrammarTest, TravelsToOtherProcesses) {
  ReplicaOrders orders;
  orders.added.push_back({.id = 1, .request = RequestFor("a+")});
  orders.added.push_back({.id = 2});
  const ReplicaOrders read = UnpackOrders(Pack(orders));
  ASSERT_NE(read.added.at(0).request.grammar, nullptr);
  EXPECT_EQ(*read.added[0].request.grammar, *orders.added[0].request.grammar);
  EXPECT_EQ(read.added.at(1).request.grammar, nullptr);
}

}  // namespace
}  // namespace trimtab
