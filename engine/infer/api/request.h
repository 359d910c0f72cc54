// What is asked of an engine that serves, and what it answers.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/grammar/grammar_source.h"

namespace trimtab {

/// How a token is chosen from the logits. What the fields mean, and in which order they apply, says
/// sampler.h. The defaults choose the likeliest token.
struct SamplingOptions {
  double temperature = 0;         // 0 = the likeliest token
  int64_t top_k = 0;              // likeliest tokens to choose among; 0 = all
  double top_p = 1;               // of the probability, the likeliest tokens; 1 = all
  double min_p = 0;               // of the likeliest token's probability; 0 = all
  double repetition_penalty = 1;  // of tokens that occurred; 1 = none
  double presence_penalty = 0;    // taken off the logit of a token that the answer has
  double frequency_penalty = 0;   // taken off it for each time that it has it
  uint64_t seed = 0;
  int64_t log_probabilities = 0;  // of so many of the likeliest tokens, beside the chosen one's

  bool operator==(const SamplingOptions&) const = default;
};

/// A token that was chosen.
struct SampledToken {
  int32_t id = 0;
  float log_probability = 0;  // under the model, before temperature and filters
  /// Ids and log probabilities of the likeliest tokens, the likeliest first.
  std::vector<std::pair<int32_t, float>> likeliest{};
};

using RequestId = int64_t;

/// How the prompt's final hidden states become an embedding.
enum class Pooling : uint8_t {
  kNone,  // a text is generated instead
  kMean,  // the mean over all tokens
  kLast,  // the last token's
};

struct GenerationRequest {
  std::vector<int32_t> prompt;  // at least one token
  /// New ones; at least 1, or 0 with prompt_log_probabilities. An embedding has none.
  int64_t max_tokens = 16;
  SamplingOptions sampling{};
  std::vector<int32_t> stop_tokens{};  // one of these ends the text and is not part of it
  int64_t min_tokens = 0;              // new ones before a stop token may be chosen
  std::vector<std::pair<int32_t, float>> logit_bias{};  // added to logits
  std::vector<int32_t> allowed_tokens{};                // empty: all
  /// The answer has none of these runs of tokens.
  std::vector<std::vector<int32_t>> banned_sequences{};
  /// Asks for the log probability of each prompt token but the first, and so many of the likeliest.
  std::optional<int64_t> prompt_log_probabilities{};
  /// What the answer must fit; null: anything. Stop tokens then come only where it may end; it ends
  /// without one where nothing may follow, even before min_tokens.
  std::shared_ptr<const GrammarSource> grammar{};
  Pooling pooling = Pooling::kNone;  // other than kNone asks for an embedding
};

enum class FinishReason {
  kNone,    // it goes on
  kStop,    // a stop token
  kLength,  // max_tokens, or the longest sequence that the engine takes
  kError,   // it cannot go on
};

/// "none", "stop", "length", "error".
std::string_view Name(FinishReason reason);

/// What a step has brought one request.
struct RequestUpdate {
  RequestId id = 0;
  std::vector<SampledToken> tokens{};  // new ones, in order; one or, with speculation, more
  FinishReason finish = FinishReason::kNone;
  std::string failure{};  // why, with kError: one line
  /// With prompt_log_probabilities, once: the prompt's tokens. The first has no log probability.
  std::vector<SampledToken> prompt{};
  std::vector<float> embedding{};  // [C], with the last update of an embedding

  /// True if it tells the client anything.
  bool has_news() const {
    return !tokens.empty() || !prompt.empty() || finish != FinishReason::kNone;
  }
};

}  // namespace trimtab
