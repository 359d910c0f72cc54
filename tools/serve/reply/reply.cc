#include "tools/serve/reply/reply.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "tools/serve/reply/json_text.h"

namespace trimtab {

using nlohmann::json;

Reply::Reply(const ApiRequest& request, const Tokenizer& tokenizer, ReplyHead head)
    : request_(request), tokenizer_(tokenizer), head_(std::move(head)) {}

std::string Reply::Begin(const std::vector<Choice>&) { return ""; }
std::string Reply::Event(const std::vector<Choice>&, size_t, const Piece&) { return ""; }
std::string Reply::End(const std::vector<Choice>&) { return ""; }

json Reply::Envelope(const char* object) const {
  return {{"id", head_.id}, {"object", object}, {"created", head_.created}, {"model", head_.model}};
}

json Reply::Usage(const std::vector<Choice>& choices) const {
  int64_t prompt = 0;
  for (const auto& tokens : request_.prompts) prompt += std::ssize(tokens);
  int64_t completion = 0;
  for (const Choice& choice : choices) completion += std::ssize(choice.answer.tokens());
  return {{"prompt_tokens", prompt},
          {"completion_tokens", completion},
          {"total_tokens", prompt + completion}};
}

std::vector<const Choice*> Reply::Best(const std::vector<Choice>& choices) const {
  std::vector<const Choice*> best;
  const auto drawn = static_cast<size_t>(request_.drawn);
  const auto kept = static_cast<size_t>(request_.answers);
  for (size_t begin = 0; begin < choices.size(); begin += drawn) {
    std::vector<const Choice*> of_prompt;
    for (size_t i = begin; i < begin + drawn; ++i) of_prompt.push_back(&choices[i]);
    if (drawn > kept) {
      std::ranges::stable_sort(of_prompt, std::ranges::greater(),
                               [](const Choice* each) { return each->answer.likelihood(); });
    }
    of_prompt.resize(kept);
    best.insert(best.end(), of_prompt.begin(), of_prompt.end());
  }
  return best;
}

std::unique_ptr<Reply> MakeReply(const ApiRequest& request, const Tokenizer& tokenizer,
                                 ReplyHead head) {
  const auto make = request.endpoint == kChat         ? MakeChatReply
                    : request.endpoint == kResponses  ? MakeResponseReply
                    : request.endpoint == kEmbeddings ? MakeEmbeddingReply
                                                      : MakeCompletionReply;
  return make(request, tokenizer, std::move(head));
}

}  // namespace trimtab
