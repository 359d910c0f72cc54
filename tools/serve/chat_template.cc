#include "tools/serve/chat_template.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/base/error.h"
#include "engine/base/nearest_name.h"

namespace trimtab {
namespace {

/// Collects text and special tokens. Text that no token interrupts is encoded as one, as it is
/// where a template is written out as a whole.
class Writer {
 public:
  Writer(const Tokenizer& tokenizer, std::vector<int32_t> begin)
      : tokenizer_(tokenizer), tokens_(std::move(begin)) {}

  Writer& Text(std::string_view text) {
    text_ += text;
    return *this;
  }

  Writer& Special(std::string_view name) {
    Flush();
    tokens_.push_back(*tokenizer_.SpecialId(name));
    return *this;
  }

  std::vector<int32_t> Take() {
    Flush();
    return std::move(tokens_);
  }

 private:
  void Flush() {
    if (!text_.empty()) tokenizer_.Encode(text_, tokens_);
    text_.clear();
  }

  const Tokenizer& tokenizer_;
  std::vector<int32_t> tokens_;
  std::string text_;
};

std::string_view Trimmed(std::string_view text) {
  constexpr std::string_view kBlank = " \t\r\n";
  const size_t begin = text.find_first_not_of(kBlank);
  if (begin == std::string_view::npos) return "";
  return text.substr(begin, text.find_last_not_of(kBlank) + 1 - begin);
}

using Messages = std::vector<ChatMessage>;

void WriteChatMl(const Messages& messages, Writer& out) {
  for (const ChatMessage& message : messages) {
    out.Special("<|im_start|>").Text(message.role).Text("\n").Text(message.content);
    out.Special("<|im_end|>").Text("\n");
  }
  out.Special("<|im_start|>").Text("assistant\n");
}

void WriteLlama3(const Messages& messages, Writer& out) {
  const auto header = [&out](std::string_view role) {
    out.Special("<|start_header_id|>").Text(role).Special("<|end_header_id|>").Text("\n\n");
  };
  for (const ChatMessage& message : messages) {
    header(message.role);
    out.Text(Trimmed(message.content)).Special("<|eot_id|>");
  }
  header("assistant");
}

/// Gemma has no system role: what it says stands before the first question.
void WriteGemma(const Messages& messages, Writer& out) {
  std::string system;
  for (const ChatMessage& message : messages) {
    if (message.role == "system") {
      system = std::string(Trimmed(message.content)) + "\n\n";
      continue;
    }
    out.Special("<start_of_turn>").Text(message.role == "assistant" ? "model" : "user").Text("\n");
    out.Text(system).Text(Trimmed(message.content)).Special("<end_of_turn>").Text("\n");
    system.clear();
  }
  out.Special("<start_of_turn>").Text("model\n");
}

/// Every question and its answer are a text of their own; the first begins as every prompt does.
void WriteLlama2(const Messages& messages, Writer& out) {
  std::string system;
  bool first = true;
  for (const ChatMessage& message : messages) {
    if (message.role == "system") {
      system = fmt::format("<<SYS>>\n{}\n<</SYS>>\n\n", message.content);
    } else if (message.role == "user") {
      if (!first) out.Special("<s>");
      out.Text(fmt::format("[INST] {}{} [/INST]", system, Trimmed(message.content)));
      system.clear();
      first = false;
    } else {
      out.Text(fmt::format(" {} ", Trimmed(message.content))).Special("</s>");
    }
  }
}

void WritePlain(const Messages& messages, Writer& out) {
  for (const ChatMessage& message : messages) {
    if (message.role == "system") {
      out.Text(message.content).Text("\n\n");
    } else {
      out.Text(message.role == "user" ? "User: " : "Assistant: ").Text(message.content).Text("\n");
    }
  }
  out.Text("Assistant:");
}

struct Known {
  const char* name;
  std::vector<const char*> special;    // tokens that it writes
  const char* end;                     // the one that ends an answer; null: the end of a document
  std::vector<const char*> stops;      // texts that end an answer
  std::vector<const char*> signature;  // in the Jinja texts that say the same
  const char* foreign;                 // in texts that share the signature and say another; or null
  void (*write)(const Messages&, Writer&);
};

const std::vector<Known>& AllKnown() {
  static const std::vector<Known> kKnown = {
      {"chatml",
       {"<|im_start|>", "<|im_end|>"},
       "<|im_end|>",
       {},
       {"<|im_start|>", "<|im_end|>"},
       "<|im_sep|>",  // Phi-4
       WriteChatMl},
      {"gemma",
       {"<start_of_turn>", "<end_of_turn>"},
       "<end_of_turn>",
       {},
       {"<start_of_turn>"},
       nullptr,
       WriteGemma},
      {"llama-2", {"<s>", "</s>"}, nullptr, {}, {"[INST]", "<<SYS>>"}, nullptr, WriteLlama2},
      {"llama-3",
       {"<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"},
       "<|eot_id|>",
       {},
       {"<|start_header_id|>", "<|eot_id|>"},
       nullptr,
       WriteLlama3},
      {"plain", {}, nullptr, {"\nUser:"}, {}, nullptr, WritePlain},
  };
  return kKnown;
}

const Known& FindKnown(std::string_view name) {
  for (const Known& known : AllKnown()) {
    if (known.name == name) return known;
  }
  throw UsageError(
      fmt::format("unknown chat template '{}'{}", name, SuggestName(name, ChatTemplate::Names())));
}

/// Whether a Jinja text writes the token that begins a text: nothing else would.
bool BeginsAText(std::string_view jinja) {
  constexpr std::string_view kBegins[] = {"bos_token", "<s>", "<bos>", "<|begin_of_text|>"};
  return std::ranges::any_of(
      kBegins, [&](std::string_view each) { return jinja.find(each) != std::string_view::npos; });
}

/// A system message may come first; then user and assistant take turns, and the user is last.
void CheckTurns(const Messages& messages) {
  size_t turn = 0;
  for (size_t i = 0; i < messages.size(); ++i) {
    const std::string& role = messages[i].role;
    if (role == "system" && i == 0) continue;
    const char* expected = turn++ % 2 == 0 ? "user" : "assistant";
    if (role == expected) continue;
    throw UsageError(
        fmt::format("$.messages[{}].role: expected '{}', got '{}'; a system message may "
                    "come first, then user and assistant take turns",
                    i, expected, role));
  }
  if (turn % 2 == 0) throw UsageError("$.messages: expected the last one to be the user's");
}

}  // namespace

const std::vector<std::string>& ChatTemplate::Names() {
  static const std::vector<std::string> kNames = [] {
    std::vector<std::string> names;
    for (const Known& known : AllKnown()) names.emplace_back(known.name);
    return names;
  }();
  return kNames;
}

ChatTemplate::ChatTemplate(std::string_view name, const Tokenizer& tokenizer, bool begins)
    : name_(FindKnown(name).name), tokenizer_(tokenizer) {
  if (begins) begin_ = tokenizer.prompt_prefix();
  for (const char* special : FindKnown(name).special) {
    if (tokenizer.SpecialId(special)) continue;
    throw InputError(
        fmt::format("chat template '{}' needs a special token '{}', which this "
                    "vocabulary lacks",
                    name, special));
  }
}

std::string ChatTemplate::Recognise(std::string_view jinja) {
  for (const Known& known : AllKnown()) {
    const auto has = [&](const char* part) { return jinja.find(part) != std::string_view::npos; };
    const bool other = known.foreign != nullptr && has(known.foreign);
    if (!known.signature.empty() && !other &&
        std::all_of(known.signature.begin(), known.signature.end(), has)) {
      return known.name;
    }
  }
  return "";
}

ChatPrompt ChatTemplate::Render(const std::vector<ChatMessage>& messages) const {
  CheckTurns(messages);
  const Known& known = FindKnown(name_);
  Writer writer(tokenizer_, begin_);
  known.write(messages, writer);
  ChatPrompt prompt = {writer.Take(), {tokenizer_.eod_id()}, {}};
  if (known.end != nullptr) prompt.stop_tokens.push_back(*tokenizer_.SpecialId(known.end));
  for (const char* stop : known.stops) prompt.stop_strings.emplace_back(stop);
  return prompt;
}

std::unique_ptr<ChatTemplate> FindChatTemplate(const std::string& name, const Tokenizer& tokenizer,
                                               std::string& why) {
  if (!name.empty()) return std::make_unique<ChatTemplate>(name, tokenizer);
  const std::string jinja = tokenizer.chat_template();
  const std::string known = ChatTemplate::Recognise(jinja);
  if (!known.empty()) {
    return std::make_unique<ChatTemplate>(known, tokenizer, BeginsAText(jinja));
  }
  why = fmt::format("{}; expected --chat-template with one of {}",
                    jinja.empty() ? "no chat template came with this model"
                                  : "the chat template of this model is none that is known",
                    fmt::join(ChatTemplate::Names(), ", "));
  return nullptr;
}

}  // namespace trimtab
