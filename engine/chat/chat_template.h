// Conversations as the prompts that models were taught to answer.
#pragma once

#include <cstdint>
#include <ctime>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/chat/jinja/template.h"
#include "engine/chat/jinja/text.h"
#include "engine/chat/tool_format.h"
#include "engine/data/tokenizer/tokenizer.h"

namespace trimtab {

/// A conversation to answer, as apply_chat_template of Hugging Face's transformers takes it.
struct ChatRequest {
  nlohmann::ordered_json messages = nlohmann::ordered_json::array();
  nlohmann::ordered_json tools{};      // null: none
  nlohmann::ordered_json documents{};  // null: none
  bool add_generation_prompt = true;
  /// The last message is to be gone on with: it is left open. Not with add_generation_prompt.
  bool continue_final_message = false;
  nlohmann::ordered_json kwargs{};   // more variables for the template; null or an object
  std::optional<std::time_t> now{};  // what strftime_now formats; the clock's time if left out
};

/// A conversation as tokens, and what ends the answer.
struct ChatPrompt {
  std::vector<int32_t> tokens{};
  std::vector<int32_t> stop_tokens{};
  std::vector<std::string> stop_strings{};
  /// What was encoded: parts that came with the request are marked kInput, those of `generation`
  /// blocks kGenerated.
  jinja::Text text{};
};

/// A Jinja template of conversations for one vocabulary. Safe to use from several threads.
class ChatTemplate {
 public:
  /// The templates that are built in: "chatml", "gemma", "llama-2", "llama-3", "plain".
  static const std::vector<std::string>& Names();

  /// The built-in template `name`, for `tokenizer`, which must outlive this. Its conversations
  /// begin as every prompt does. Throws UsageError for an unknown name, and InputError when the
  /// vocabulary lacks one of the template's special tokens.
  ChatTemplate(std::string_view name, const Tokenizer& tokenizer);
  /// The templates of `format`, called `name` in messages; the one named "tool_use" is for requests
  /// with tools. A conversation begins as its template writes it. Throws InputError.
  ChatTemplate(std::string name, const ChatFormat& format, const Tokenizer& tokenizer);

  const std::string& name() const { return name_; }
  /// How its model calls tools; kNone where the template does not say it.
  ToolFormat tool_format() const { return tool_format_; }
  /// True if the template writes `tools`.
  bool takes_tools() const { return takes_tools_; }
  /// True if the template names the role "developer", OpenAI's newer word for "system".
  bool knows_developer() const { return knows_developer_; }
  /// True if answers may begin with a thought between <think> and </think>.
  bool thinks() const { return thinks_; }

  /// The prompt for the answer to the messages. What they say is text: it cannot forge the tokens
  /// between them. Throws UsageError: the template refuses the messages, with its own words, or
  /// fails.
  ChatPrompt Render(const ChatRequest& request) const;

 private:
  struct Ends {
    std::vector<int32_t> tokens;
    std::vector<std::string> strings;
  };

  const jinja::Template& TemplateFor(const ChatRequest& request) const;
  jinja::Text RenderText(const ChatRequest& request) const;
  /// The text up to where the last message ends.
  jinja::Text RenderOpen(const ChatRequest& request) const;
  /// Renders short conversations and looks at what follows an answer.
  Ends FindEnds() const;

  std::string name_;
  const Tokenizer& tokenizer_;
  std::vector<int32_t> begin_;  // of every conversation
  std::vector<std::pair<std::string, jinja::Template>> templates_;
  jinja::Entries token_variables_;
  std::vector<std::string> special_names_;
  ToolFormat tool_format_ = ToolFormat::kNone;
  bool takes_tools_ = false;
  bool knows_developer_ = false;
  bool thinks_ = false;
  Ends ends_;
};

/// The template `name`: built in, or the path of a file with Jinja text. Where `name` is empty, the
/// one that came with the tokenizer; if none did: null, and `why` says what is missing. Throws as
/// ChatTemplate does.
std::unique_ptr<ChatTemplate> FindChatTemplate(const std::string& name, const Tokenizer& tokenizer,
                                               std::string& why);

}  // namespace trimtab
