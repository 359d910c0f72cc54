#include "tools/serve/reply/choice_events.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "tools/serve/reply/json_text.h"

namespace trimtab {

using nlohmann::json;

ChoiceReply::ChoiceReply(const ApiRequest& request, const Tokenizer& tokenizer, ReplyHead head,
                         const char* event_object)
    : Reply(request, tokenizer, std::move(head)), event_object_(event_object) {
  // Keys are in the order of the alphabet, so "choices" comes first.
  events_end_ = "]," + JsonText(Envelope(event_object)).substr(1) + "\n\n";
}

std::string ChoiceReply::ChoiceEvent(const json& choice, const std::vector<Choice>& choices) const {
  if (!request_.continuous_usage) {
    return "data: {\"choices\":[" + JsonText(choice) + events_end_;
  }
  json event = Envelope(event_object_);
  event["choices"] = json::array({choice});
  event["usage"] = Usage(choices);
  return EventOf(event);
}

json ChoiceReply::PromptIds(const Choice& choice) const { return request_.prompts[choice.prompt]; }

std::string ChoiceReply::End(const std::vector<Choice>& choices) {
  std::string last;
  if (request_.include_usage) {
    json event = Envelope(event_object_);
    event["choices"] = json::array();
    event["usage"] = Usage(choices);
    last = EventOf(event);
  }
  return last + "data: [DONE]\n\n";
}

}  // namespace trimtab
