// ChoiceEvents: the events of completions and chats, each of which has one choice.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "tools/serve/reply/reply.h"

namespace trimtab {

/// A reply whose events are choices, and whose last one may count tokens.
class ChoiceReply : public Reply {
 public:
  ChoiceReply(const ApiRequest& request, const Tokenizer& tokenizer, ReplyHead head,
              const char* event_object);

  std::string End(const std::vector<Choice>& choices) override;

 protected:
  std::string ChoiceEvent(const nlohmann::json& choice, const std::vector<Choice>& choices) const;
  /// The ids of a prompt's tokens.
  nlohmann::json PromptIds(const Choice& choice) const;

 private:
  const char* event_object_;
  std::string events_end_;  // of all events, behind their choice
};

}  // namespace trimtab
