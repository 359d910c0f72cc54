// Reply: how an endpoint writes its answers, whole or as a stream of events.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "engine/data/tokenizer/tokenizer.h"
#include "tools/serve/api/api_request.h"
#include "tools/serve/reply/answer.h"

namespace trimtab {

/// One of the answers that a request asks for.
struct Choice {
  size_t prompt = 0;  // which it answers
  Answer answer;
  std::vector<SampledToken> prompt_tokens{};  // their log-probabilities, where asked for
  std::vector<float> embedding{};
};

/// What all replies say of themselves.
struct ReplyHead {
  std::string model;
  std::string id;
  int64_t created = 0;
};

/// Choices are numbered prompt by prompt.
class Reply {
 public:
  /// `tokenizer` must outlive this.
  Reply(const ApiRequest& request, const Tokenizer& tokenizer, ReplyHead head);
  virtual ~Reply() = default;

  /// Returns the whole answer.
  virtual std::string Body(const std::vector<Choice>& choices) const = 0;
  /// Returns the events that begin a stream.
  virtual std::string Begin(const std::vector<Choice>& choices);
  /// Returns the events of what the last Add brought choice `index`; empty without news.
  virtual std::string Event(const std::vector<Choice>& choices, size_t index, const Piece& piece);
  /// Returns the events that end a stream.
  virtual std::string End(const std::vector<Choice>& choices);

 protected:
  nlohmann::json Envelope(const char* object) const;
  nlohmann::json Usage(const std::vector<Choice>& choices) const;
  /// The choices to show: of those drawn for each prompt the likeliest.
  std::vector<const Choice*> Best(const std::vector<Choice>& choices) const;
  TokenNames names() const { return {tokenizer_, request_.tokens_as_ids}; }

  const ApiRequest request_;
  const Tokenizer& tokenizer_;
  const ReplyHead head_;
};

std::unique_ptr<Reply> MakeCompletionReply(const ApiRequest& request, const Tokenizer& tokenizer,
                                           ReplyHead head);
std::unique_ptr<Reply> MakeChatReply(const ApiRequest& request, const Tokenizer& tokenizer,
                                     ReplyHead head);
std::unique_ptr<Reply> MakeResponseReply(const ApiRequest& request, const Tokenizer& tokenizer,
                                         ReplyHead head);
std::unique_ptr<Reply> MakeEmbeddingReply(const ApiRequest& request, const Tokenizer& tokenizer,
                                          ReplyHead head);

/// The reply of the endpoint that the request is for.
std::unique_ptr<Reply> MakeReply(const ApiRequest& request, const Tokenizer& tokenizer,
                                 ReplyHead head);

}  // namespace trimtab
