// Completions as OpenAI's API writes them.
#include <nlohmann/json.hpp>
#include <utility>

#include "tools/serve/reply/choice_events.h"
#include "tools/serve/reply/json_text.h"

namespace trimtab {
namespace {

using nlohmann::json;

constexpr char kObject[] = "text_completion";

class CompletionReply : public ChoiceReply {
 public:
  CompletionReply(const ApiRequest& request, const Tokenizer& tokenizer, ReplyHead head)
      : ChoiceReply(request, tokenizer, std::move(head), kObject) {}

  std::string Body(const std::vector<Choice>& choices) const override {
    json body = Envelope(kObject);
    body["choices"] = json::array();
    for (const Choice* choice : Best(choices)) {
      const Answer& answer = choice->answer;
      json& written = body["choices"].emplace_back(
          json{{"index", body["choices"].size()},
               {"text", EchoOf(*choice) + answer.content()},
               {"logprobs", LogProbabilities(*choice, 0, request_.echo)},
               {"finish_reason", answer.finish()}});
      if (request_.prompt_log_probabilities) {
        written["prompt_logprobs"] = PromptLogProbabilities(choice->prompt_tokens, names());
      }
      if (!request_.token_ids) continue;
      written["token_ids"] = IdsOf(answer.tokens());
      written["prompt_token_ids"] = PromptIds(*choice);
    }
    body["usage"] = Usage(choices);
    return JsonText(body) + "\n";
  }

  std::string Event(const std::vector<Choice>& choices, size_t index, const Piece& piece) override {
    const Choice& choice = choices[index];
    const Answer& answer = choice.answer;
    begun_.resize(choices.size());
    const bool news = answer.begin() < answer.tokens().size();
    const bool first = !begun_[index] && PromptIsThere(choice);
    const bool tells = !piece.empty() || answer.ended() || (first && request_.echo) ||
                       (news && (request_.log_probabilities || request_.token_ids));
    if (!tells) return "";
    begun_[index] = begun_[index] || first;
    const bool echo = first && request_.echo;
    json written = {{"index", index},
                    {"text", (echo ? EchoOf(choice) : "") + piece.content},
                    {"logprobs", LogProbabilities(choice, answer.begin(), echo)},
                    {"finish_reason", answer.ended() ? json(answer.finish()) : json()}};
    if (request_.token_ids) {
      written["token_ids"] =
          IdsOf(std::span<const SampledToken>(answer.tokens()).subspan(answer.begin()));
      if (first) written["prompt_token_ids"] = PromptIds(choice);
    }
    if (first && request_.prompt_log_probabilities) {
      written["prompt_logprobs"] = PromptLogProbabilities(choice.prompt_tokens, names());
    }
    return ChoiceEvent(written, choices);
  }

 private:
  std::string EchoOf(const Choice& choice) const {
    return request_.echo ? request_.prompt_texts[choice.prompt] : "";
  }

  /// True once all is known that is told of a prompt.
  bool PromptIsThere(const Choice& choice) const {
    return !request_.generation.prompt_log_probabilities ||
           choice.prompt_tokens.size() >= request_.prompts[choice.prompt].size();
  }

  /// Of the answer's tokens from `begin` on, and of the prompt's before them.
  json LogProbabilities(const Choice& choice, size_t begin, bool echo) const {
    if (!request_.log_probabilities) return nullptr;
    std::vector<SampledToken> tokens;
    std::vector<int64_t> places;
    TokenPlaces counter;
    int64_t answer_begins = 0;
    if (request_.echo) {
      for (const SampledToken& token : choice.prompt_tokens) {
        places.push_back(counter.Add(tokenizer_.BytesOf(token.id)));
      }
      answer_begins = counter.Add("");
      tokens = choice.prompt_tokens;
    }
    if (!echo) {
      tokens.clear();
      places.clear();
    }
    const auto& answer = choice.answer;
    for (size_t i = begin; i < answer.tokens().size(); ++i) {
      tokens.push_back(answer.tokens()[i]);
      places.push_back(answer_begins + answer.places()[i]);
    }
    return CompletionLogProbabilities(tokens, places, names());
  }

  std::vector<bool> begun_;  // choices of which an event has told
};

}  // namespace

std::unique_ptr<Reply> MakeCompletionReply(const ApiRequest& request, const Tokenizer& tokenizer,
                                           ReplyHead head) {
  return std::make_unique<CompletionReply>(request, tokenizer, std::move(head));
}

}  // namespace trimtab
