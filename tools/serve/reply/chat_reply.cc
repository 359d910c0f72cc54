// Chat completions as OpenAI's API writes them.
#include <nlohmann/json.hpp>
#include <utility>

#include "tools/serve/reply/choice_events.h"
#include "tools/serve/reply/json_text.h"

namespace trimtab {
namespace {

using nlohmann::json;

class ChatReply : public ChoiceReply {
 public:
  ChatReply(const ApiRequest& request, const Tokenizer& tokenizer, ReplyHead head)
      : ChoiceReply(request, tokenizer, std::move(head), "chat.completion.chunk") {}

  std::string Body(const std::vector<Choice>& choices) const override {
    json body = Envelope("chat.completion");
    body["choices"] = json::array();
    for (const Choice* choice : Best(choices)) {
      const Answer& answer = choice->answer;
      json& written = body["choices"].emplace_back(json{{"index", body["choices"].size()},
                                                        {"message", MessageOf(answer)},
                                                        {"logprobs", LogProbabilities(answer, 0)},
                                                        {"finish_reason", answer.finish()}});
      if (request_.token_ids) written["token_ids"] = IdsOf(answer.tokens());
    }
    if (request_.token_ids) body["prompt_token_ids"] = request_.prompts[0];
    if (request_.prompt_log_probabilities) {
      body["prompt_logprobs"] = PromptLogProbabilities(choices[0].prompt_tokens, names());
    }
    body["usage"] = Usage(choices);
    return JsonText(body) + "\n";
  }

  std::string Begin(const std::vector<Choice>& choices) override {
    std::string events;
    for (size_t i = 0; i < choices.size(); ++i) {
      events += ChoiceEvent({{"index", i},
                             {"delta", {{"role", "assistant"}, {"content", request_.prefix}}},
                             {"logprobs", nullptr},
                             {"finish_reason", nullptr}},
                            choices);
    }
    return events;
  }

  std::string Event(const std::vector<Choice>& choices, size_t index, const Piece& piece) override {
    const Answer& answer = choices[index].answer;
    const bool news = answer.begin() < answer.tokens().size();
    const bool tells = !piece.empty() || answer.ended() ||
                       (news && (request_.log_probabilities || request_.token_ids));
    if (!tells) return "";
    json delta = json::object();
    if (!piece.content.empty()) delta["content"] = piece.content;
    if (!piece.reasoning.empty() && request_.show_reasoning) {
      delta["reasoning_content"] = piece.reasoning;
    }
    for (const ToolCallDelta& call : piece.calls) delta["tool_calls"].push_back(DeltaOf(call));
    json choice = {{"index", index},
                   {"delta", std::move(delta)},
                   {"logprobs", LogProbabilities(answer, answer.begin())},
                   {"finish_reason", answer.ended() ? json(answer.finish()) : json()}};
    if (request_.token_ids) {
      choice["token_ids"] =
          IdsOf(std::span<const SampledToken>(answer.tokens()).subspan(answer.begin()));
    }
    return ChoiceEvent(choice, choices);
  }

 private:
  json MessageOf(const Answer& answer) const {
    const std::string content = request_.prefix + answer.content();
    const bool called = !answer.calls().empty();
    json message = {{"role", "assistant"},
                    {"content", called && content.empty() ? json() : json(content)},
                    {"refusal", nullptr}};
    if (!answer.reasoning().empty() && request_.show_reasoning) {
      message["reasoning_content"] = answer.reasoning();
    }
    for (const ToolCallDelta& call : answer.calls()) {
      message["tool_calls"].push_back(
          {{"id", call.id},
           {"type", "function"},
           {"function", {{"name", call.name}, {"arguments", call.arguments}}}});
    }
    return message;
  }

  /// The first of a call carries its id and name.
  static json DeltaOf(const ToolCallDelta& call) {
    json delta = {{"index", call.index}, {"function", {{"arguments", call.arguments}}}};
    if (call.id.empty()) return delta;
    delta["id"] = call.id;
    delta["type"] = "function";
    delta["function"]["name"] = call.name;
    return delta;
  }

  json LogProbabilities(const Answer& answer, size_t begin) const {
    if (!request_.log_probabilities) return nullptr;
    return ChatLogProbabilities(std::span<const SampledToken>(answer.tokens()).subspan(begin),
                                names());
  }
};

}  // namespace

std::unique_ptr<Reply> MakeChatReply(const ApiRequest& request, const Tokenizer& tokenizer,
                                     ReplyHead head) {
  return std::make_unique<ChatReply>(request, tokenizer, std::move(head));
}

}  // namespace trimtab
