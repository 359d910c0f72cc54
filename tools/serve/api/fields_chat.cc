// Fields of conversations, and how their answers are taken apart.
#include <array>

#include "tools/serve/api/field.h"

namespace trimtab {
namespace {

using enum FieldKind;

void AddKwargs(Asked& asked, const FieldValue& value) {
  value.RequireObject();
  for (const auto& [key, each] : value.json().items()) asked.template_kwargs[key] = each;
}

/// A word that templates of some models write into the prompt.
void AddEffort(Asked& asked, const FieldValue& value) {
  asked.template_kwargs[value.path().substr(2)] = value.Text();
}

/// A response's `reasoning`: {"effort": "low"}.
void ReadReasoning(Asked& asked, const FieldValue& value) {
  value.RequireKeys({"effort", "summary", "generate_summary"});
  const FieldValue effort = value.At("effort");
  if (!effort.null()) asked.template_kwargs["reasoning_effort"] = effort.Text();
}

void ReadReasoningFormat(Asked& asked, const FieldValue& value) {
  const std::string& format = value.Text();
  if (format != "none" && format != "auto" && format != "deepseek") {
    value.Refuse("\"none\", \"auto\" or \"deepseek\"");
  }
  asked.split_reasoning = format != "none";
}

constexpr unsigned kTalk = kChat | kTokenize;

constexpr std::array kFields = {
    Field{"messages", kTalk, kTaken, R"("type":"array")", "", "the conversation",
          [](Asked& a, const FieldValue& v) { a.messages = v; }},
    Field{"add_generation_prompt", kTalk, kTaken, R"("type":"boolean")", "",
          "the prompt ends with the beginning of an answer",
          [](Asked& a, const FieldValue& v) { a.add_generation_prompt = v.Boolean(); }},
    Field{"continue_final_message", kTalk, kTaken, R"("type":"boolean")", "",
          "the answer goes on with the last message",
          [](Asked& a, const FieldValue& v) { a.continue_final_message = v.Boolean(); }},
    Field{"chat_template_kwargs", kTalk, kTaken, R"("type":"object")", "",
          "variables of the model's template", AddKwargs},
    Field{"documents", kChat, kTaken, R"("type":"array")", "", "for templates that read them",
          [](Asked& a, const FieldValue& v) {
            for (const FieldValue& each : v.List("a list of documents")) each.RequireObject();
            a.documents = v.json();
          }},
    Field{"chat_template", kTalk, kNeutral, R"("type":"string")", "[]",
          "start the server with --chat-template"},
    Field{"tools", kTalk, kTaken, R"("type":"array")", "", "functions that the answer may call",
          [](Asked& a, const FieldValue& v) { a.tools = v; }},
    Field{"tool_choice", kChat, kTaken, R"("type":["string","object"])", "",
          "none, auto, required, a function, or allowed tools",
          [](Asked& a, const FieldValue& v) { a.tool_choice = v; }},
    Field{"parallel_tool_calls", kChat, kTaken, R"("type":"boolean")", "",
          "false: one call at most",
          [](Asked& a, const FieldValue& v) { a.parallel_calls = v.Boolean(); }},
    Field{"parse_tool_calls", kChat, kNothing, R"("type":"boolean")", "",
          "calls are parsed where tools are given"},
    Field{"functions", kChat, kNeutral, R"("type":"array")", "[[]]", "use tools"},
    Field{"function_call", kChat, kNeutral, R"("type":["string","object"])", R"(["none", "auto"])",
          "use tool_choice"},
    Field{"tools", kResponses, kNeutral, R"("type":"array")", "[[]]",
          "use /v1/chat/completions for tools"},
    Field{"tool_choice", kResponses, kNeutral, R"("type":["string","object"])",
          R"(["none", "auto"])", "use /v1/chat/completions for tools"},
    Field{"parallel_tool_calls", kResponses, kNothing, R"("type":"boolean")", "",
          "there are no tools"},
    Field{"max_tool_calls", kResponses, kNothing, R"("type":"integer")", "", "there are no tools"},
    Field{"reasoning_effort", kChat, kTaken, R"("type":"string")", "", "for templates that read it",
          AddEffort},
    Field{"verbosity", kChat, kTaken, R"("type":"string")", "", "for templates that read it",
          AddEffort},
    Field{"reasoning", kResponses, kTaken, R"("type":"object")", "",
          "effort: for templates that read it", ReadReasoning},
    Field{"include_reasoning", kChat, kTaken, R"("type":"boolean")", "",
          "false: thoughts are left out",
          [](Asked& a, const FieldValue& v) { a.out.show_reasoning = v.Boolean(); }},
    Field{"reasoning_format", kChat, kTaken, R"("type":"string")", "",
          "none: thoughts stay in the content", ReadReasoningFormat},
    Field{"thinking_forced_open", kChat, kNeutral, R"("type":"boolean")", "[false]",
          "whether the prompt begins a thought is the template's to say"},
    Field{"thinking_token_budget", kText, kNeutral, R"("type":"integer")", "[-1]",
          "use max_tokens, or what the template reads in chat_template_kwargs"},
    Field{"modalities", kChat, kNeutral, R"("type":"array")", R"([["text"], []])",
          "answers are text"},
    Field{"audio", kChat, kNeutral, R"("type":"object")", "[]", "answers are text"},
    Field{"web_search_options", kChat, kNeutral, R"("type":"object")", "[]",
          "this server reads no web pages"},
    Field{"prediction", kChat, kNothing, R"("type":"object")", "",
          "a hint that makes answers faster elsewhere, never different"},
    Field{"mm_processor_kwargs", kChat, kNeutral, R"("type":"object")", "[{}]", "prompts are text"},
    Field{"media_io_kwargs", kChat, kNeutral, R"("type":"object")", "[{}]", "prompts are text"},
};

}  // namespace

std::span<const Field> ChatFields() { return kFields; }

}  // namespace trimtab
