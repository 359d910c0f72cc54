// A model that is only a cache, and random loads of a scheduler over it: what it answers depends on
// every token that it finds there, so a block in the wrong place, or given to two sequences, shows
// in the text.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <span>
#include <vector>

#include "engine/base/units.h"
#include "engine/infer/scheduler/scheduler.h"

namespace trimtab {

inline constexpr int64_t kVocab = 7;
inline constexpr int64_t kWidth = 3;   // of hidden states
inline constexpr int32_t kNoText = 4;  // the token that has no bytes

/// Compiles grammars over the texts of the model's tokens.
inline const std::shared_ptr<GrammarCompiler>& CaseGrammars() {
  static const auto compiler =
      std::make_shared<GrammarCompiler>(std::make_shared<const TokenVocabulary>(
          std::vector<std::string>{"a", "b", "[", "ab", "", "ba", "]"}));
  return compiler;
}

class ManualClock final : public Clock {
 public:
  double Now() const override { return now; }
  double now = 0;
};

inline uint64_t Mix(uint64_t hash, int32_t token) {
  return (hash ^ static_cast<uint64_t>(token + 1)) * 0x9e3779b97f4a7c15u;
}

/// Logits of the token that follows a text of this hash.
inline std::vector<float> LogitsOf(uint64_t hash) {
  std::vector<float> logits;
  for (int64_t id = 0; id < kVocab; ++id) {
    logits.push_back(static_cast<float>((hash >> (8 * id)) & 0xff) / 64.0f);
  }
  return logits;
}

class CacheModel final : public ModelExecutor {
 public:
  explicit CacheModel(const SchedulerOptions& options)
      : options_(options), slots_(static_cast<size_t>(options.blocks * options.block_size), -1) {}

  std::vector<float> Run(const StepPlan& plan) override {
    EXPECT_LE(plan.rows(), options_.limits.tokens_per_step);
    if (plan.output == StepOutput::kLogits) {
      EXPECT_LE(plan.logit_rows(), options_.limits.sequences * (1 + options_.lookup_tokens));
    }
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
        const int64_t width = plan.output == StepOutput::kLogits ? kVocab : kWidth;
        logits.insert(logits.end(), row.begin(), row.begin() + width);
      }
    }
    return logits;
  }
  BlockContents ReadBlocks(std::span<const int32_t> blocks) override {
    BlockContents contents(1);
    for (const int32_t block : blocks) {
      const auto slots = std::as_bytes(SlotsOf(block));
      contents[0].insert(contents[0].end(), slots.begin(), slots.end());
    }
    return contents;
  }
  void WriteBlocks(std::span<const int32_t> blocks, const BlockContents& contents) override {
    const size_t bytes = SlotsOf(0).size_bytes();
    const std::byte* next = std::span(contents.at(0)).last(blocks.size() * bytes).data();
    for (const int32_t block : blocks) {
      std::memcpy(SlotsOf(block).data(), next, bytes);
      next += bytes;
    }
  }
  int64_t vocab_size() const override { return kVocab; }

 private:
  std::span<int32_t> SlotsOf(int32_t block) {
    const auto size = static_cast<size_t>(options_.block_size);
    return std::span(slots_).subspan(static_cast<size_t>(block) * size, size);
  }
  int32_t& Slot(const PlannedSequence& sequence, int64_t position) {
    const int64_t block = sequence.blocks.at(static_cast<size_t>(position / options_.block_size));
    return slots_.at(
        static_cast<size_t>(block * options_.block_size + position % options_.block_size));
  }

  SchedulerOptions options_;
  std::vector<int32_t> slots_;
};

struct Asked {
  GenerationRequest request;
  std::vector<int32_t> tokens;
  std::vector<float> scores;  // log probabilities of the prompt's tokens but the first
  std::vector<float> embedding;
  FinishReason finish = FinishReason::kNone;

  void Take(const RequestUpdate& update) {
    EXPECT_EQ(finish, FinishReason::kNone) << "goes on after its end";
    for (const SampledToken& token : update.tokens) tokens.push_back(token.id);
    for (size_t i = 1; i < update.prompt.size(); ++i) {
      EXPECT_EQ(update.prompt[i].id, request.prompt[i]);
      scores.push_back(update.prompt[i].log_probability);
    }
    if (!update.embedding.empty()) embedding = update.embedding;
    finish = update.finish;
  }

  void ExpectSameAs(const Asked& other) const {
    EXPECT_EQ(tokens, other.tokens);
    EXPECT_EQ(scores, other.scores);
    EXPECT_EQ(finish, other.finish);
    ASSERT_EQ(embedding.size(), other.embedding.size());
    for (size_t i = 0; i < embedding.size(); ++i) {
      // Chunks add up in another order.
      EXPECT_NEAR(embedding[i], other.embedding[i], 1e-5);
    }
  }
};

/// What a request brings when it is alone in the world.
inline Asked Alone(const GenerationRequest& request, int64_t longest) {
  SchedulerOptions options = {.block_size = longest, .blocks = 1, .grammars = CaseGrammars()};
  options.limits = {.sequences = 1, .tokens_per_step = longest, .sequence_length = longest};
  CacheModel model(options);
  const SteadyClock clock;
  Scheduler scheduler(options, model, clock);
  scheduler.AddRequest(request);
  Asked asked;
  asked.request = request;
  while (scheduler.HasWork()) {
    for (const RequestUpdate& update : scheduler.Step()) asked.Take(update);
  }
  return asked;
}

inline std::vector<int32_t> Expected(const GenerationRequest& request, int64_t longest) {
  return Alone(request, longest).tokens;
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
    options_.grammars = CaseGrammars();
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

  /// A request of which many also restrict their tokens, or ask of the prompt itself.
  GenerationRequest AnyRequest() {
    GenerationRequest request = Request();
    const auto token = [&] { return static_cast<int32_t>(Below(kVocab)); };
    if (Below(3) == 0) {
      request.sampling.frequency_penalty = static_cast<double>(Below(5)) / 4;
      request.sampling.presence_penalty = static_cast<double>(Below(5)) / 4 - 0.5;
    }
    if (Below(4) == 0) request.logit_bias = {{token(), 1.5f}, {token(), -2.0f}};
    if (Below(4) == 0) request.min_tokens = Below(10);
    if (Below(6) == 0) request.allowed_tokens = {0, 2, 3, 5};
    if (Below(3) == 0) {
      const char* const kGrammars[] = {"root ::= (\"ab\" | \"b\"){2,20}",
                                       "root ::= \"[\" root? \"]\" | [ab]+",
                                       "root ::= \"a\" root \"b\" | \"[]\""};
      request.grammar = std::make_shared<GrammarSource>(
          GrammarSource{GrammarSource::Kind::kGrammar, kGrammars[Below(3)]});
      if (Below(2) == 0) request.stop_tokens = {kNoText};
    }
    if (Below(6) == 0) request.banned_sequences = {{token(), token()}, {1}};
    if (Below(4) == 0) request.prompt_log_probabilities = Below(3);
    if (request.prompt_log_probabilities && Below(3) == 0) request.max_tokens = 0;
    if (!request.prompt_log_probabilities && Below(6) == 0) {
      request.pooling = Below(2) == 0 ? Pooling::kMean : Pooling::kLast;
    }
    return request;
  }

  int64_t Below(int64_t bound) {
    return static_cast<int64_t>(random_() % static_cast<uint32_t>(std::max<int64_t>(1, bound)));
  }
  const SchedulerOptions& options() const { return options_; }

 private:
  std::mt19937 random_;
  SchedulerOptions options_;
};

}  // namespace trimtab
