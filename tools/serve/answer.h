// Answer: the text of a request's tokens, and the JSON that clients read.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "engine/data/tokenizer.h"
#include "engine/infer/request.h"
#include "engine/infer/text_stream.h"
#include "tools/serve/api_request.h"

namespace trimtab {

/// Turns tokens into text as they come, until a stop string or the last token.
class Answer {
 public:
  Answer(const Tokenizer& tokenizer, std::vector<std::string> stop_strings, bool trim_start);

  /// Text that is certain now. Tokens behind a stop string are not taken.
  std::string Add(const std::vector<SampledToken>& tokens, FinishReason finish);

  bool ended() const { return !finish_.empty(); }
  /// "stop" or "length"; empty before the end.
  const std::string& finish() const { return finish_; }
  /// Those taken, of which the ones from `begin` on were taken by the last Add.
  const std::vector<SampledToken>& tokens() const { return tokens_; }
  size_t begin() const { return begin_; }
  /// Characters of the text before each of them, spaces that are trimmed included. A part of a
  /// character begins where the character does.
  const std::vector<int64_t>& offsets() const { return offsets_; }

 private:
  std::string Certain(std::string text);

  const Tokenizer& tokenizer_;
  TextStream stream_;
  bool trim_start_ = false;  // until the first character that is no space
  std::vector<SampledToken> tokens_;
  TextStream whole_;  // of all tokens, whatever is held back of them
  int64_t characters_ = 0;
  std::vector<int64_t> offsets_;
  size_t begin_ = 0;
  std::string finish_;
};

/// Writes a request's answer as OpenAI's API does: one object, or the events of a stream.
class AnswerWriter {
 public:
  AnswerWriter(const ApiRequest& request, const Tokenizer& tokenizer, std::string model,
               std::string id, int64_t created);

  /// The whole answer.
  std::string Body(const Answer& answer, const std::string& text) const;
  /// The event that begins a stream; empty where there is none.
  std::string FirstEvent() const;
  /// The event of what the last Add brought; empty when it brought nothing to tell.
  std::string Event(const Answer& answer, const std::string& text) const;
  /// What ends a stream.
  std::string LastEvents(const Answer& answer) const;

 private:
  nlohmann::json Envelope(bool chunk) const;
  /// The event of a stream with one choice.
  std::string ChoiceEvent(const nlohmann::json& choice) const;
  nlohmann::json LogProbabilities(const Answer& answer, size_t begin) const;
  nlohmann::json Usage(const Answer& answer) const;

  Endpoint endpoint_;
  bool log_probabilities_ = false;
  bool include_usage_ = false;
  int64_t prompt_tokens_ = 0;
  const Tokenizer& tokenizer_;
  std::string model_;
  std::string id_;
  int64_t created_ = 0;
  std::string events_end_;  // of all events of a stream, behind their choice
};

/// {"error": {...}} as OpenAI writes it.
std::string ErrorBody(const std::string& message, const std::string& type);

/// JSON as text, whatever its strings hold.
std::string JsonText(const nlohmann::json& json);

}  // namespace trimtab
