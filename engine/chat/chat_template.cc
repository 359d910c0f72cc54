#include "engine/chat/chat_template.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>

#include "engine/base/error.h"
#include "engine/base/io/file.h"
#include "engine/chat/built_in_templates.h"
#include "engine/chat/encode_text.h"
#include "engine/chat/jinja/json_value.h"

namespace trimtab {
namespace {

using nlohmann::ordered_json;

constexpr char kDefault[] = "default";
constexpr char kToolUse[] = "tool_use";
constexpr int64_t kMostTemplateFileBytes = int64_t{4} << 20;
/// Stands in messages where something is looked for.
constexpr char kProbe[] = "TRIMTAB-LOOKS-HERE";
constexpr char kNextProbe[] = "TRIMTAB-ASKS-ON";

/// Roles whose names may be a part of a special token's, as in <|user|>.
constexpr std::array<std::string_view, 7> kRoles = {"system",    "user",     "assistant", "tool",
                                                    "developer", "function", "ipython"};

/// Messages as values. Everything that they say is input, but a role's name.
jinja::Value MessagesOf(const ordered_json& messages) {
  std::vector<jinja::Value> values;
  for (const ordered_json& message : messages) {
    jinja::Entries entries;
    for (const auto& [key, value] : message.items()) {
      const bool known =
          key == "role" && value.is_string() &&
          std::ranges::find(kRoles, value.get_ref<const std::string&>()) != kRoles.end();
      entries.emplace_back(jinja::Value(key),
                           jinja::FromJson(value, known ? jinja::kPlain : jinja::kInput));
    }
    values.push_back(jinja::MakeDict(entries));
  }
  return jinja::Value::List(std::move(values));
}

void CheckMessages(const ordered_json& messages) {
  if (!messages.is_array()) throw UsageError("$.messages: expected a list");
  for (size_t i = 0; i < messages.size(); ++i) {
    if (!messages[i].is_object()) {
      throw UsageError(fmt::format("$.messages[{}]: expected an object", i));
    }
  }
}

/// The text of the message, or of its last part of text; null if it has none.
ordered_json* LastText(ordered_json& message) {
  if (!message.contains("content")) return nullptr;
  ordered_json& content = message["content"];
  if (content.is_string()) return &content;
  if (!content.is_array()) return nullptr;
  for (auto part = content.rbegin(); part != content.rend(); ++part) {
    if (part->is_object() && part->contains("text") && (*part)["text"].is_string()) {
      return &(*part)["text"];
    }
  }
  return nullptr;
}

std::string_view WithoutSpaceBehind(std::string_view text) {
  return text.substr(0, text.find_last_not_of(" \t\r\n") + 1);
}

/// White space and the first line with something on it: what ends an answer where no token does.
std::string FirstLine(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t\r\n");
  if (begin == std::string_view::npos) return "";
  return std::string(WithoutSpaceBehind(text.substr(0, text.find('\n', begin))));
}

}  // namespace

const std::vector<std::string>& ChatTemplate::Names() {
  static const std::vector<std::string> kNames = [] {
    std::vector<std::string> names;
    for (const BuiltInTemplate& each : BuiltInTemplates()) names.emplace_back(each.name);
    return names;
  }();
  return kNames;
}

ChatTemplate::ChatTemplate(std::string_view name, const Tokenizer& tokenizer)
    : ChatTemplate(FindBuiltInTemplate(name).name,
                   {{{kDefault, FindBuiltInTemplate(name).jinja}}, tokenizer.chat_format().tokens},
                   tokenizer) {
  begin_ = tokenizer.prompt_prefix();
  for (const char* special : FindBuiltInTemplate(name).special) {
    if (tokenizer.SpecialId(special)) continue;
    throw InputError(
        fmt::format("chat template '{}' needs a special token '{}', which this "
                    "vocabulary lacks",
                    name, special));
  }
}

ChatTemplate::ChatTemplate(std::string name, const ChatFormat& format, const Tokenizer& tokenizer)
    : name_(std::move(name)), tokenizer_(tokenizer), special_names_(tokenizer.special_names()) {
  std::string all;
  for (const auto& [template_name, text] : format.templates) {
    templates_.emplace_back(template_name,
                            jinja::Template(text, fmt::format("chat template '{}'", name_)));
    all += text;
  }
  for (const auto& [variable, text] : format.tokens) {
    token_variables_.emplace_back(jinja::Value(variable), jinja::Value(text));
  }
  tool_format_ = ToolFormatOf(all);
  takes_tools_ = all.find("tools") != std::string::npos;
  knows_developer_ = all.find("developer") != std::string::npos;
  thinks_ = all.find("<think>") != std::string::npos || all.find("</think>") != std::string::npos;
  ends_ = FindEnds();
}

const jinja::Template& ChatTemplate::TemplateFor(const ChatRequest& request) const {
  const auto find = [this](std::string_view name) {
    return std::ranges::find(templates_, name,
                             [](const auto& each) { return std::string_view(each.first); });
  };
  if (!request.tools.is_null() && find(kToolUse) != templates_.end()) {
    return find(kToolUse)->second;
  }
  return find(kDefault) != templates_.end() ? find(kDefault)->second : templates_.front().second;
}

jinja::Text ChatTemplate::RenderText(const ChatRequest& request) const {
  jinja::Entries variables = token_variables_;
  const auto set = [&variables](const char* name, jinja::Value value) {
    variables.emplace_back(jinja::Value(name), std::move(value));
  };
  try {
    set("messages", MessagesOf(request.messages));
    set("tools", jinja::FromJson(request.tools, jinja::kInput));
    set("documents", jinja::FromJson(request.documents, jinja::kInput));
    set("add_generation_prompt", jinja::Value(request.add_generation_prompt));
    for (const auto& [name, value] : request.kwargs.items()) {
      set(name.c_str(), jinja::FromJson(value, jinja::kInput));
    }
  } catch (const jinja::Failure& failure) {
    throw UsageError(fmt::format("the messages: {}", failure.what()));
  }
  return TemplateFor(request).Render(variables, request.now.value_or(std::time(nullptr)));
}

ChatPrompt ChatTemplate::Render(const ChatRequest& request) const {
  CheckMessages(request.messages);
  if (!request.kwargs.is_null() && !request.kwargs.is_object()) {
    throw UsageError("chat_template_kwargs: expected an object");
  }
  ChatPrompt prompt = {begin_, {tokenizer_.eod_id()}, ends_.strings, {}};
  if (request.continue_final_message) {
    if (request.add_generation_prompt) {
      throw UsageError("continue_final_message and add_generation_prompt cannot both be true");
    }
    prompt.text = RenderOpen(request);
  } else {
    prompt.text = RenderText(request);
  }
  for (const int32_t token : ends_.tokens) {
    if (token != tokenizer_.eod_id()) prompt.stop_tokens.push_back(token);
  }
  EncodeText(prompt.text, special_names_, tokenizer_, prompt.tokens);
  return prompt;
}

jinja::Text ChatTemplate::RenderOpen(const ChatRequest& request) const {
  ChatRequest marked = request;
  ordered_json* last = marked.messages.empty() ? nullptr : LastText(marked.messages.back());
  if (last == nullptr) {
    throw UsageError("continue_final_message: expected a last message with text");
  }
  const std::string tag = kProbe + std::string(" ");
  *last = last->get<std::string>() + tag;
  const jinja::Text text = RenderText(marked);
  const size_t found = text.bytes().rfind(kProbe);
  if (found == std::string::npos) {
    throw UsageError(fmt::format(
        "continue_final_message: chat template '{}' does not write the last message", name_));
  }
  jinja::Text open = text.Slice(0, found);
  // A template that takes the space behind the message away would take that before the tag, too.
  if (!std::string_view(text.bytes()).substr(found).starts_with(tag)) {
    open = open.Slice(0, WithoutSpaceBehind(open.bytes()).size());
  }
  return open;
}

ChatTemplate::Ends ChatTemplate::FindEnds() const {
  Ends ends;
  const ordered_json question = {{"role", "user"}, {"content", "q"}};
  const ordered_json answer = {{"role", "assistant"}, {"content", kProbe}};
  for (const bool goes_on : {false, true}) {
    ChatRequest request = {.messages = ordered_json::array({question, answer}),
                           .add_generation_prompt = false};
    if (goes_on) request.messages.push_back({{"role", "user"}, {"content", kNextProbe}});
    jinja::Text text;
    try {
      text = RenderText(request);
    } catch (const jinja::RenderError&) {
      continue;  // a template may refuse such a conversation
    }
    const size_t found = text.bytes().rfind(kProbe);
    if (found == std::string::npos) continue;
    const size_t end = std::min(text.bytes().find(kNextProbe, found), text.size());
    const jinja::Text rest = text.Slice(found + std::string_view(kProbe).size(), end);
    const std::vector<SpecialPlace> specials = FindSpecials(rest, special_names_, tokenizer_);
    const auto first = std::ranges::find(specials, false, &SpecialPlace::forged);
    if (first != specials.end()) {
      ends.tokens = {first->id};
      return ends;
    }
    const std::string line = FirstLine(rest.bytes());
    if (line.empty()) continue;
    ends.strings = {line};
    return ends;
  }
  return ends;
}

std::unique_ptr<ChatTemplate> FindChatTemplate(const std::string& name, const Tokenizer& tokenizer,
                                               std::string& why) {
  std::error_code ignored;
  if (!name.empty() && std::filesystem::is_regular_file(name, ignored)) {
    ChatFormat format = tokenizer.chat_format();
    format.templates = {{kDefault, ReadTextFile(name, kMostTemplateFileBytes)}};
    return std::make_unique<ChatTemplate>(name, format, tokenizer);
  }
  if (!name.empty()) return std::make_unique<ChatTemplate>(name, tokenizer);
  const ChatFormat format = tokenizer.chat_format();
  if (!format.templates.empty()) {
    return std::make_unique<ChatTemplate>("the model's own", format, tokenizer);
  }
  why = fmt::format(
      "no chat template came with this model; expected --chat-template with a file or one of {}",
      fmt::join(ChatTemplate::Names(), ", "));
  return nullptr;
}

}  // namespace trimtab
