// What clients ask for: the bodies of OpenAI's completions and chat completions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/base/error.h"
#include "engine/chat/chat_template.h"
#include "engine/data/tokenizer.h"
#include "engine/infer/engine.h"

namespace trimtab {

/// The model as clients see it.
struct ServedModel {
  std::string name;
  const Tokenizer* tokenizer = nullptr;
  std::vector<int32_t> end_tokens = {};  // of an answer, beside those of tokenizer and template
  const ChatTemplate* chat = nullptr;    // null: there is none, and why says the next
  std::string no_chat = {};
  EngineLimits limits{};
  int64_t vocab_size = 0;
};

enum class Endpoint { kCompletions, kChat };

/// A request that makes sense.
struct ApiRequest {
  Endpoint endpoint = Endpoint::kCompletions;
  GenerationRequest generation{};
  std::vector<std::string> stop_strings{};
  bool stream = false;
  bool include_usage = false;      // in the last event of a stream
  bool log_probabilities = false;  // in the answer
};

/// A model of another name than the one that is served.
struct UnknownModelError : InputError {
  using InputError::InputError;
};

inline constexpr int64_t kMaxStops = 16;
inline constexpr int64_t kMaxLogProbabilities = 20;

/// Reads a body. What OpenAI defines and this server does not do is taken only with the value that
/// asks for nothing (`n` 1, `echo` false, ...). Throws InputError or UsageError with the JSON path,
/// and UnknownModelError.
ApiRequest ParseApiRequest(Endpoint endpoint, const std::string& body, const ServedModel& model);

}  // namespace trimtab
