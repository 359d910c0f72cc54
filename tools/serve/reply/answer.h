// Answer: the text of a request's tokens, while it grows.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/chat/reasoning.h"
#include "engine/chat/tool_calls.h"
#include "engine/data/tokenizer/tokenizer.h"
#include "engine/infer/api/request.h"
#include "engine/infer/api/text_stream.h"
#include "tools/serve/api/api_request.h"
#include "tools/serve/reply/token_text.h"

namespace trimtab {

/// What some tokens have added to an answer.
struct Piece {
  std::string content;
  std::string reasoning;
  std::vector<ToolCallDelta> calls;

  bool empty() const { return content.empty() && reasoning.empty() && calls.empty(); }
};

/// Turns tokens into text as they come, until a stop string or the last token.
class Answer {
 public:
  /// `tokenizer` must outlive this. `seed` makes the ids of tool calls.
  Answer(const Tokenizer& tokenizer, AnswerOptions options, uint64_t seed = 0);

  /// Returns what is certain now. Tokens behind a stop string are not taken.
  Piece Add(const std::vector<SampledToken>& tokens, FinishReason finish);

  bool ended() const { return !finish_.empty(); }
  /// "stop", "length" or "tool_calls"; empty before the end.
  const std::string& finish() const { return finish_; }
  /// Tokens taken; the ones from `begin` on were taken by the last Add.
  const std::vector<SampledToken>& tokens() const { return tokens_; }
  size_t begin() const { return begin_; }
  /// Where each of them begins, in characters. Spaces that are trimmed count.
  const std::vector<int64_t>& places() const { return places_; }
  /// All that Add has returned.
  const std::string& content() const { return content_; }
  const std::string& reasoning() const { return reasoning_; }
  const std::vector<ToolCallDelta>& calls() const { return calls_; }
  /// Mean log-probability of its tokens.
  double likelihood() const;

 private:
  std::string BytesOf(int32_t token) const;
  std::string Trimmed(std::string text);
  Piece TakeApart(std::string text);
  void Keep(const Piece& piece);

  const Tokenizer& tokenizer_;
  AnswerOptions options_;
  std::map<int32_t, std::string> shown_;  // special tokens that are part of the text
  TextStream stream_;
  std::optional<ReasoningParser> thoughts_;
  std::unique_ptr<ToolCallParser> parser_;  // null: no tools
  TokenPlaces counter_;
  std::vector<SampledToken> tokens_;
  std::vector<int64_t> places_;
  std::string content_;
  std::string reasoning_;
  std::vector<ToolCallDelta> calls_;
  size_t begin_ = 0;
  std::string finish_;
};

}  // namespace trimtab
