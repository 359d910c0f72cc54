// Responses as OpenAI's API writes them: plain text, whole or as events.
#include <nlohmann/json.hpp>
#include <utility>

#include "tools/serve/reply/json_text.h"
#include "tools/serve/reply/reply.h"

namespace trimtab {
namespace {

using nlohmann::json;

class ResponseReply : public Reply {
 public:
  using Reply::Reply;

  std::string Body(const std::vector<Choice>& choices) const override {
    return JsonText(Response(&choices)) + "\n";
  }

  std::string Begin(const std::vector<Choice>&) override {
    const json response = Response(nullptr);
    std::string events = Write("response.created", {{"response", response}});
    events += Write("response.in_progress", {{"response", response}});
    return events;
  }

  std::string Event(const std::vector<Choice>& choices, size_t index, const Piece& piece) override {
    const Answer& answer = choices[index].answer;
    std::string events;
    if (!piece.reasoning.empty()) {
      if (!thinking_) events += Added(ReasoningItem("", "in_progress"));
      thinking_ = true;
      events += Write("response.reasoning_text.delta", {{"item_id", ReasoningId()},
                                                        {"output_index", 0},
                                                        {"content_index", 0},
                                                        {"delta", piece.reasoning}});
    }
    if (piece.content.empty() && !answer.ended()) return events;
    if (!speaking_) events += BeginMessage(answer);
    speaking_ = true;
    if (piece.content.empty()) return events;
    json delta = PlaceOf(answer);
    delta["delta"] = piece.content;
    delta["logprobs"] = json::array();
    events += Write("response.output_text.delta", std::move(delta));
    return events;
  }

  std::string End(const std::vector<Choice>& choices) override {
    const Answer& answer = choices[0].answer;
    json text = PlaceOf(answer);
    text["text"] = answer.content();
    text["logprobs"] = json::array();
    json part = PlaceOf(answer);
    part["part"] = PartOf(answer.content());
    const json response = Response(&choices);
    const std::string kind = answer.finish() == "length" ? "incomplete" : "completed";
    std::string events = Write("response.output_text.done", std::move(text));
    events += Write("response.content_part.done", std::move(part));
    events += Write("response.output_item.done",
                    {{"output_index", IndexOf(answer)}, {"item", response["output"].back()}});
    events += Write("response." + kind, {{"response", response}});
    return events;
  }

 private:
  std::string MessageId() const { return "msg-" + head_.id; }
  std::string ReasoningId() const { return "rs-" + head_.id; }
  static int64_t IndexOf(const Answer& answer) { return answer.reasoning().empty() ? 0 : 1; }

  /// Events have a name of their own, and are numbered.
  std::string Write(const std::string& type, json data) {
    data["type"] = type;
    data["sequence_number"] = events_++;
    return "event: " + type + "\n" + EventOf(data);
  }

  std::string Added(json item) {
    return Write("response.output_item.added",
                 {{"output_index", added_++}, {"item", std::move(item)}});
  }

  std::string BeginMessage(const Answer& answer) {
    std::string events;
    if (thinking_) {
      events +=
          Write("response.output_item.done",
                {{"output_index", 0}, {"item", ReasoningItem(answer.reasoning(), "completed")}});
    }
    events += Added(MessageItem(json::array(), "in_progress"));
    json part = PlaceOf(answer);
    part["part"] = PartOf("");
    events += Write("response.content_part.added", std::move(part));
    return events;
  }

  json PlaceOf(const Answer& answer) const {
    return {{"item_id", MessageId()}, {"output_index", IndexOf(answer)}, {"content_index", 0}};
  }

  static json PartOf(const std::string& text) {
    return {{"type", "output_text"},
            {"text", text},
            {"annotations", json::array()},
            {"logprobs", json::array()}};
  }

  json MessageItem(json content, const char* status) const {
    return {{"type", "message"},
            {"id", MessageId()},
            {"status", status},
            {"role", "assistant"},
            {"content", std::move(content)}};
  }

  json ReasoningItem(const std::string& text, const char* status) const {
    json content = json::array();
    if (!text.empty()) content.push_back({{"type", "reasoning_text"}, {"text", text}});
    return {{"type", "reasoning"},
            {"id", ReasoningId()},
            {"status", status},
            {"summary", json::array()},
            {"content", std::move(content)}};
  }

  /// The response; without choices as it is before its output.
  json Response(const std::vector<Choice>* choices) const {
    const json asked = request_.echoed;
    const auto said = [&asked](const char* key, json otherwise) {
      return asked.value(key, json()).is_null() ? std::move(otherwise) : asked[key];
    };
    json out = {{"id", head_.id},
                {"object", "response"},
                {"created_at", head_.created},
                {"model", head_.model},
                {"status", "in_progress"},
                {"background", false},
                {"error", nullptr},
                {"incomplete_details", nullptr},
                {"instructions", said("instructions", nullptr)},
                {"max_output_tokens", said("max_output_tokens", nullptr)},
                {"metadata", said("metadata", json::object())},
                {"output", json::array()},
                {"parallel_tool_calls", said("parallel_tool_calls", true)},
                {"previous_response_id", nullptr},
                {"reasoning", said("reasoning", {{"effort", nullptr}, {"summary", nullptr}})},
                {"store", false},
                {"temperature", request_.generation.sampling.temperature},
                {"text", said("text", {{"format", {{"type", "text"}}}})},
                {"tool_choice", said("tool_choice", "auto")},
                {"tools", json::array()},
                {"top_p", request_.generation.sampling.top_p},
                {"truncation", "disabled"},
                {"usage", nullptr},
                {"user", said("user", nullptr)}};
    if (choices == nullptr) return out;
    const Answer& answer = (*choices)[0].answer;
    const bool cut = answer.finish() == "length";
    out["status"] = cut ? "incomplete" : "completed";
    if (cut) out["incomplete_details"] = {{"reason", "max_output_tokens"}};
    if (!answer.reasoning().empty()) {
      out["output"].push_back(ReasoningItem(answer.reasoning(), "completed"));
    }
    out["output"].push_back(
        MessageItem(json::array({PartOf(answer.content())}), cut ? "incomplete" : "completed"));
    const json usage = Usage(*choices);
    out["usage"] = {{"input_tokens", usage["prompt_tokens"]},
                    {"output_tokens", usage["completion_tokens"]},
                    {"total_tokens", usage["total_tokens"]}};
    return out;
  }

  int64_t events_ = 0;
  int64_t added_ = 0;      // items of the output
  bool thinking_ = false;  // an item of thoughts was begun
  bool speaking_ = false;  // the message was begun
};

}  // namespace

std::unique_ptr<Reply> MakeResponseReply(const ApiRequest& request, const Tokenizer& tokenizer,
                                         ReplyHead head) {
  return std::make_unique<ResponseReply>(request, tokenizer, std::move(head));
}

}  // namespace trimtab
