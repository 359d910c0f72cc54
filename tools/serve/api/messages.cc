// Messages as clients write them, for the templates of models.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "tools/serve/api/asked.h"

namespace trimtab {
namespace {

constexpr size_t kShownName = 60;
constexpr std::array<std::string_view, 6> kRoles = {"system",    "developer", "user",
                                                    "assistant", "tool",      "function"};

/// The text of a part; parts of other kinds are refused by name.
std::string TextOf(const FieldValue& part) {
  if (part.json().is_string()) return part.Text();
  part.RequireObject();
  const std::string type = part.At("type").null() ? "text" : part.At("type").Text();
  if (type == "text" || type == "input_text" || type == "output_text") {
    return part.At("text").Text();
  }
  if (type == "refusal") return part.At("refusal").Text();
  part.At("type").Refuse("\"text\", as prompts are text alone");
}

/// A text, null, or parts that are texts: these become one.
Json ContentOf(const FieldValue& content) {
  if (content.null() || content.json().is_string()) return content.json();
  std::string text;
  for (const FieldValue& part : content.List("a text, or a list of parts")) text += TextOf(part);
  return text;
}

/// Templates write arguments as JSON, so what is text here is parsed.
Json ArgumentsOf(const FieldValue& arguments) {
  if (arguments.null()) return Json::object();
  if (!arguments.json().is_string()) {
    arguments.RequireObject();
    return arguments.json();
  }
  if (arguments.Text().empty()) return Json::object();
  Json parsed = Json::parse(arguments.Text(), nullptr, /*allow_exceptions=*/false);
  if (!parsed.is_object()) arguments.Refuse("a JSON object as text");
  return parsed;
}

Json CallOf(const FieldValue& function) {
  function.RequireObject();
  return {{"name", function.At("name").Text()},
          {"arguments", ArgumentsOf(function.At("arguments"))}};
}

Json CallsOf(const FieldValue& calls) {
  Json out = Json::array();
  for (const FieldValue& call : calls.List("a list of tool calls")) {
    call.RequireObject();
    const FieldValue type = call.At("type");
    if (!type.null() && type.Text() != "function") type.Refuse("\"function\"");
    Json& read = out.emplace_back(Json::object());
    if (!call.At("id").null()) read["id"] = call.At("id").Text();
    read["type"] = "function";
    read["function"] = CallOf(call.At("function"));
  }
  return out;
}

/// Keys that have a meaning; others are told of.
constexpr std::array<std::string_view, 15> kKnown = {"role",
                                                     "content",
                                                     "name",
                                                     "refusal",
                                                     "tool_calls",
                                                     "tool_call_id",
                                                     "audio",
                                                     "reasoning",
                                                     "reasoning_content",
                                                     "function_call",
                                                     "annotations",
                                                     "prefix",
                                                     "id",
                                                     "type",
                                                     "status"};

Json ReadMessage(const FieldValue& message, std::vector<std::string>& ignored) {
  message.RequireObject();
  const FieldValue role = message.At("role");
  if (std::ranges::find(kRoles, role.Text()) == kRoles.end()) {
    role.Refuse("system, developer, user, assistant, tool or function");
  }
  const bool assistant = role.Text() == "assistant";
  Json read = {{"role", role.Text() == "function" ? "tool" : role.Text()}};
  read["content"] = ContentOf(message.At("content"));
  const FieldValue refusal = message.At("refusal");
  if (!refusal.null() && read["content"].is_null()) read["content"] = refusal.Text();
  const FieldValue audio = message.At("audio");
  if (!audio.null()) audio.Refuse("null, as prompts are text alone");
  for (const char* key : {"name", "tool_call_id"}) {
    if (!message.At(key).null()) read[key] = message.At(key).Text();
  }
  for (const char* key : {"reasoning", "reasoning_content"}) {
    if (!message.At(key).null()) read["reasoning_content"] = message.At(key).Text();
  }
  const FieldValue calls = message.At("tool_calls");
  if (!calls.null() && !calls.json().empty()) read["tool_calls"] = CallsOf(calls);
  const FieldValue old = message.At("function_call");
  if (!old.null()) {
    read["tool_calls"] = Json::array({{{"type", "function"}, {"function", CallOf(old)}}});
  }
  if (read["content"].is_null() && !(assistant && read.contains("tool_calls"))) {
    message.At("content").Refuse("a text, or a list of parts");
  }
  for (const auto& [key, value] : message.json().items()) {
    if (std::ranges::find(kKnown, key) != kKnown.end()) continue;
    ignored.push_back(message.path().substr(2) + "." + Printable(key, kShownName));
  }
  return read;
}

}  // namespace

Json ReadMessages(const FieldValue& messages, std::vector<std::string>& ignored) {
  Json read = Json::array();
  for (const FieldValue& message : messages.List("a list of messages")) {
    read.push_back(ReadMessage(message, ignored));
  }
  if (read.empty()) messages.Refuse("a list of messages");
  return read;
}

Json ReadInput(const Asked& asked) {
  Json messages = Json::array();
  if (!asked.instructions.empty()) {
    messages.push_back({{"role", "system"}, {"content", asked.instructions}});
  }
  const FieldValue& input = *asked.input;
  if (input.json().is_string()) {
    messages.push_back({{"role", "user"}, {"content", input.Text()}});
    return messages;
  }
  std::vector<std::string> ignored;
  for (const FieldValue& item : input.List("a text, or a list of messages")) {
    item.RequireObject();
    const FieldValue type = item.At("type");
    if (!type.null() && type.Text() == "reasoning") continue;  // thoughts are not part of a talk
    if (!type.null() && type.Text() != "message") {
      type.Refuse("\"message\"; use /v1/chat/completions for tools, files and images");
    }
    messages.push_back(ReadMessage(item, ignored));
  }
  if (messages.empty()) input.Refuse("at least one message");
  return messages;
}

}  // namespace trimtab
