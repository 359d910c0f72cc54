// Conversations as the prompts that models were taught to answer.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/data/tokenizer.h"

namespace trimtab {

struct ChatMessage {
  std::string role;  // "system", "user", "assistant"
  std::string content;
};

/// A conversation as tokens, and what ends the answer.
struct ChatPrompt {
  std::vector<int32_t> tokens;
  std::vector<int32_t> stop_tokens;
  std::vector<std::string> stop_strings;
};

/// One of a few known ways to write conversations; Jinja is not interpreted.
class ChatTemplate {
 public:
  /// "chatml", "gemma", "llama-2", "llama-3", "plain".
  static const std::vector<std::string>& Names();

  /// The template `name`, for `tokenizer`, which must outlive this. With `begins` a
  /// conversation begins with what every prompt does. Throws InputError when the vocabulary lacks
  /// one of its special tokens.
  ChatTemplate(std::string_view name, const Tokenizer& tokenizer, bool begins = true);

  /// The name of the known template that the Jinja text `jinja` writes, by the tokens it names; ""
  /// if it is none of them.
  static std::string Recognise(std::string_view jinja);

  const std::string& name() const { return name_; }

  /// The prompt for the answer to the last message. What messages say is text: it cannot forge the
  /// tokens between them. Throws UsageError: a role that is unknown or out of turn.
  ChatPrompt Render(const std::vector<ChatMessage>& messages) const;

 private:
  std::string name_;
  const Tokenizer& tokenizer_;
  std::vector<int32_t> begin_;  // of every conversation
};

/// The template of `name`, or, where that is empty, the one that came with the tokenizer. None of
/// either: null, and `why` says what is missing. Throws InputError as ChatTemplate does.
std::unique_ptr<ChatTemplate> FindChatTemplate(const std::string& name, const Tokenizer& tokenizer,
                                               std::string& why);

}  // namespace trimtab
