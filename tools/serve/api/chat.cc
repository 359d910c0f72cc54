// A conversation as a prompt.
#include "engine/chat/reasoning.h"
#include "tools/serve/api/asked.h"

namespace trimtab {
namespace {

/// Returns true if a message is the beginning of the answer: Mistral's and DeepSeek's way to say
/// so.
bool IsPrefix(const FieldValue& messages) {
  if (!messages.json().is_array() || messages.json().empty()) return false;
  const Json& last = messages.json().back();
  return last.is_object() && last.value("prefix", Json(false)) == true;
}

/// Calls the developer what the template calls it.
void NameDevelopers(const ChatTemplate& chat, Json& messages) {
  if (chat.knows_developer()) return;
  for (Json& message : messages) {
    if (message["role"] == "developer") message["role"] = "system";
  }
}

}  // namespace

void RenderChat(Asked& asked) {
  const ServedModel& model = asked.model;
  if (model.chat == nullptr) throw InputError(model.no_chat);
  ApiRequest& out = asked.out;
  ChatRequest request;
  request.messages = asked.input ? ReadInput(asked) : ReadMessages(*asked.messages, out.ignored);
  NameDevelopers(*model.chat, request.messages);
  request.tools = ReadTools(asked);
  request.documents = asked.documents;
  request.kwargs = asked.template_kwargs;
  request.continue_final_message =
      asked.continue_final_message || (asked.messages && IsPrefix(*asked.messages));
  request.add_generation_prompt =
      asked.add_generation_prompt.value_or(!request.continue_final_message);
  ChatPrompt prompt = model.chat->Render(request);
  if (out.echo && request.continue_final_message) {
    const Json& content = request.messages.back()["content"];
    if (content.is_string()) out.prefix = content.get<std::string>();
  }
  out.generation.stop_tokens = std::move(prompt.stop_tokens);
  for (std::string& stop : prompt.stop_strings) out.answer.stops.push_back(std::move(stop));
  // A grammar holds from the first token on, so an answer that has one has no thought.
  if (asked.split_reasoning && asked.grammars.empty() && model.chat->thinks()) {
    out.answer.thinks = EndsInThought(prompt.text);
  }
  out.answer.trim_start = !request.continue_final_message;
  out.prompts = {std::move(prompt.tokens)};
  out.prompt_texts = {""};
}

}  // namespace trimtab
