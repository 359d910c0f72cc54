#include "tools/serve/api/api_request.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <random>

#include "tools/serve/api/field.h"

namespace trimtab {
namespace {

constexpr int64_t kDefaultCompletionTokens = 16;  // OpenAI's
constexpr int64_t kManyTokens = std::numeric_limits<int32_t>::max();

uint64_t AnySeed() {
  std::random_device device;
  return static_cast<uint64_t>(device()) << 32 | device();
}

void RequireOneOf(const std::optional<FieldValue>& value, const char* key) {
  if (!value) throw InputError(fmt::format("$.{}: required, but missing", key));
}

void PutPrompts(Asked& asked) {
  const Endpoint endpoint = asked.out.endpoint;
  if (endpoint == kChat) {
    RequireOneOf(asked.messages, "messages");
    return RenderChat(asked);
  }
  if (endpoint == kResponses) {
    RequireOneOf(asked.input, "input");
    return RenderChat(asked);
  }
  RequireOneOf(asked.prompt, endpoint == kEmbeddings ? "input" : "prompt");
  ReadPrompts(*asked.prompt, asked);
  asked.out.generation.stop_tokens = {asked.model.tokenizer->eod_id()};
}

/// Cuts prompts that are longer than the client wants, or than leaves room for an answer.
void Truncate(Asked& asked) {
  if (!asked.longest_prompt) return;
  const int64_t room = asked.model.limits.sequence_length - 1;
  const auto most = static_cast<size_t>(std::min(*asked.longest_prompt, room));
  for (std::vector<int32_t>& prompt : asked.out.prompts) {
    if (prompt.size() <= most) continue;
    if (asked.cut_end) {
      prompt.resize(most);
    } else {
      prompt.erase(prompt.begin(), prompt.end() - static_cast<std::ptrdiff_t>(most));
    }
  }
}

void PutStream(Asked& asked) {
  if (!asked.stream_options) return;
  const FieldValue& options = *asked.stream_options;
  if (!asked.out.stream) options.Refuse("none without \"stream\": true");
  options.RequireKeys({"include_usage", "continuous_usage_stats", "include_obfuscation"});
  const FieldValue usage = options.At("include_usage");
  if (!usage.null()) asked.out.include_usage = usage.Boolean();
  const FieldValue continuous = options.At("continuous_usage_stats");
  if (!continuous.null()) asked.out.continuous_usage = continuous.Boolean();
}

void PutLogProbabilities(Asked& asked) {
  ApiRequest& out = asked.out;
  GenerationRequest& generation = out.generation;
  if (asked.top_log_probabilities) {
    if (!out.log_probabilities && *asked.top_log_probabilities > 0) {
      throw InputError("$.top_logprobs: expected none without \"logprobs\": true");
    }
    generation.sampling.log_probabilities = *asked.top_log_probabilities;
  }
  out.prompt_log_probabilities = asked.prompt_log_probabilities.has_value();
  generation.prompt_log_probabilities = asked.prompt_log_probabilities;
  const bool echoed = out.endpoint == kCompletions && out.echo && out.log_probabilities;
  if (echoed || generation.max_tokens == 0) {
    generation.prompt_log_probabilities = std::max(generation.prompt_log_probabilities.value_or(0),
                                                   generation.sampling.log_probabilities);
  }
}

void PutLength(Asked& asked) {
  ApiRequest& out = asked.out;
  const bool completion = out.endpoint == kCompletions;
  out.generation.max_tokens =
      asked.max_tokens.value_or(completion ? kDefaultCompletionTokens : kManyTokens);
  if (out.generation.max_tokens == 0 && !out.echo) {
    throw InputError("$.max_tokens: expected at least 1, or \"echo\": true, got 0");
  }
  std::vector<int32_t>& stops = out.generation.stop_tokens;
  stops.insert(stops.end(), asked.model.end_tokens.begin(), asked.model.end_tokens.end());
  if (asked.ignore_end) stops.clear();
  stops.insert(stops.end(), asked.stop_tokens.begin(), asked.stop_tokens.end());
}

void PutAnswers(Asked& asked) {
  ApiRequest& out = asked.out;
  out.drawn = asked.best_of.value_or(out.answers);
  if (out.drawn < out.answers) {
    throw InputError(
        fmt::format("$.best_of: expected at least n, {}, got {}", out.answers, out.drawn));
  }
  if (out.drawn > out.answers && out.stream) {
    throw InputError("$.best_of: expected n where \"stream\" is true, as the best are known last");
  }
  out.generation.sampling.seed = asked.seed ? *asked.seed : AnySeed();
}

/// A word is written at the beginning of a text or behind a space: neither may come.
void PutBadWords(Asked& asked) {
  if (!asked.bad_words) return;
  for (const std::string& word : asked.bad_words->Texts()) {
    const std::string spellings[] = {word, " " + word};
    for (const std::string& text : spellings) {
      std::vector<int32_t> tokens;
      asked.model.tokenizer->Encode(text, tokens);
      asked.out.generation.banned_sequences.push_back(std::move(tokens));
    }
  }
}

void PutGrammar(Asked& asked) {
  if (asked.grammars.empty()) return;
  if (asked.grammars.size() > 1) {
    throw InputError(fmt::format("{}: expected none beside {}, as an answer has one grammar",
                                 asked.grammars[1].first, asked.grammars[0].first));
  }
  const auto& [path, source] = asked.grammars[0];
  if (asked.model.grammars == nullptr) {
    throw InputError(fmt::format("{}: expected none, as this server has no grammars", path));
  }
  try {
    asked.model.grammars->Compile(source);  // here, as the engine would wait for it
  } catch (const InputError& error) {
    throw InputError(fmt::format("{}: {}", path, error.what()));
  }
  asked.out.generation.grammar = std::make_shared<const GrammarSource>(source);
}

}  // namespace

ApiRequest ParseApiRequest(Endpoint endpoint, const std::string& body, const ServedModel& model) {
  const Json root = ParseBody(body);
  Asked asked(model);
  asked.out.endpoint = endpoint;
  asked.out.generation.sampling.temperature = 1;
  if (endpoint == kEmbeddings) asked.out.generation.pooling = model.pooling;
  ReadFields(root, asked);
  PutPrompts(asked);
  Truncate(asked);
  if (endpoint == kEmbeddings) {
    asked.out.generation.max_tokens = 0;
    return std::move(asked.out);
  }
  PutStream(asked);
  PutLength(asked);
  PutLogProbabilities(asked);
  PutAnswers(asked);
  PutBadWords(asked);
  PutGrammar(asked);
  if (endpoint == kResponses) asked.out.echoed = root;
  return std::move(asked.out);
}

}  // namespace trimtab
