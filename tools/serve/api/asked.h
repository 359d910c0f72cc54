// Asked: what the fields of a body say, before it is put together.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "engine/grammar/grammar_source.h"
#include "tools/serve/api/api_request.h"

namespace trimtab {

/// Values are kept as they came where what they mean depends on other fields.
struct Asked {
  explicit Asked(const ServedModel& served) : model(served) {}

  const ServedModel& model;
  ApiRequest out{};

  // The prompt.
  std::optional<FieldValue> prompt{};
  std::optional<FieldValue> messages{};
  std::optional<FieldValue> input{};
  std::string instructions{};
  std::optional<bool> special_tokens{};  // the prompt begins as every prompt does
  std::optional<int64_t> longest_prompt{};
  bool cut_end = false;  // of a prompt that is too long, not its beginning

  bool special_names = true;  // names of special tokens in a text mean the tokens

  // The conversation.
  std::optional<bool> add_generation_prompt{};
  bool continue_final_message = false;
  Json documents{};
  Json template_kwargs = Json::object();
  std::optional<FieldValue> tools{};
  std::optional<FieldValue> tool_choice{};
  bool parallel_calls = true;
  bool split_reasoning = true;

  // Details of tokens to report.
  bool token_texts = false;
  bool token_pieces = false;

  // The answer.
  std::optional<int64_t> max_tokens{};
  std::optional<int64_t> best_of{};
  std::optional<int64_t> top_log_probabilities{};
  std::optional<uint64_t> seed{};
  std::vector<int32_t> stop_tokens{};
  bool ignore_end = false;
  std::optional<int64_t> prompt_log_probabilities{};
  std::optional<FieldValue> bad_words{};
  std::optional<FieldValue> stream_options{};
  std::vector<std::pair<std::string, GrammarSource>> grammars{};  // with the field that asks for it
};

/// Lists the ids of the prompts of a completion or an embedding, and their texts.
void ReadPrompts(const FieldValue& value, Asked& asked);

/// Renders the conversation.
void RenderChat(Asked& asked);

/// A conversation as the template reads it: names that are old are replaced, parts are joined,
/// arguments of calls are objects. Throws InputError for what no template could read. Adds the
/// names of keys that nothing reads to `ignored`.
Json ReadMessages(const FieldValue& messages, std::vector<std::string>& ignored);

/// The conversation of a response's `input` and `instructions`.
Json ReadInput(const Asked& asked);

/// What a `response_format` or a response's `text.format` asks for; nullopt for plain text.
std::optional<GrammarSource> ReadFormat(const FieldValue& format);

/// Reads `tools` and `tool_choice`: returns the tools for the template, sets how calls are read,
/// and a grammar where a call is forced.
Json ReadTools(Asked& asked);

}  // namespace trimtab
