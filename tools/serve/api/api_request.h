// What clients ask for, in the terms of the engine: what the bodies of all endpoints become.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/base/error.h"
#include "engine/chat/chat_template.h"
#include "engine/chat/tool_calls.h"
#include "engine/data/tokenizer/tokenizer.h"
#include "engine/grammar/token_grammar.h"
#include "engine/infer/api/engine.h"
#include "tools/serve/api/field_value.h"

namespace trimtab {

/// The model as clients see it.
struct ServedModel {
  std::string name;
  const Tokenizer* tokenizer = nullptr;
  std::vector<int32_t> end_tokens = {};  // of an answer, beside those of tokenizer and template
  const ChatTemplate* chat = nullptr;    // null: there is none, and why says the next
  std::string no_chat = {};
  std::optional<ToolFormat> tool_format = {};  // instead of what the template says
  GrammarCompiler* grammars = nullptr;         // null: there are none
  EngineLimits limits{};
  int64_t vocab_size = 0;
  int64_t embedding_size = 0;
  Pooling pooling = Pooling::kMean;  // of embeddings, unless a request says otherwise
  bool strict = false;               // unknown fields are refused
};

/// Bits, so that a field may belong to several.
enum Endpoint : unsigned {
  kCompletions = 1,
  kChat = 2,
  kResponses = 4,
  kEmbeddings = 8,
  kTokenize = 16,
  kDetokenize = 32,
};

/// How an answer's tokens become text.
struct AnswerOptions {
  std::vector<std::string> stops{};
  bool keep_stop = false;   // a stop string is part of the text
  bool trim_start = false;  // of spaces
  bool show_special = false;
  std::optional<bool> thinks{};  // thoughts are told apart; true: the prompt has begun one
  ToolFormat tools = ToolFormat::kNone;
  bool one_call = false;  // further tool calls are dropped
};

/// A request that makes sense.
struct ApiRequest {
  Endpoint endpoint = kCompletions;
  GenerationRequest generation{};               // of every answer, but for its prompt and its seed
  std::vector<std::vector<int32_t>> prompts{};  // at least one
  std::vector<std::string> prompt_texts{};      // with `echo`, of each
  int64_t answers = 1;                          // to each prompt
  int64_t drawn = 1;                            // answers to each prompt, of which the best remain
  AnswerOptions answer{};
  bool echo = false;
  std::string prefix{};  // of a chat's answer: the message that it goes on with
  bool stream = false;
  bool include_usage = false;     // in the last event of a stream
  bool continuous_usage = false;  // in all of them
  bool log_probabilities = false;
  bool prompt_log_probabilities = false;  // listed of their own
  bool tokens_as_ids = false;             // "token_id:5" instead of a token's text
  bool token_ids = false;                 // listed beside the text
  bool show_reasoning = true;
  bool base64 = false;  // embeddings
  std::string request_id{};
  Json echoed{};                       // of a response: what was asked, as OpenAI repeats it
  std::vector<std::string> ignored{};  // names of fields that nothing here knows
};

/// A model of another name than the one that is served.
struct UnknownModelError : InputError {
  using InputError::InputError;
};

/// Reads a body of an endpoint that generates or embeds. Throws InputError or UsageError with the
/// JSON path, and UnknownModelError.
ApiRequest ParseApiRequest(Endpoint endpoint, const std::string& body, const ServedModel& model);

}  // namespace trimtab
