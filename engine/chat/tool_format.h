// The ways in which models write calls of tools.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace trimtab {

enum class ToolFormat {
  kNone,
  kHermes,      // <tool_call>{"name": ..., "arguments": ...}</tool_call>: Hermes, Qwen
  kLlama3Json,  // {"name": ..., "parameters": ...}, perhaps after <|python_tag|>
  kMistral,     // [TOOL_CALLS][{"name": ..., "arguments": ...}], or [TOOL_CALLS]name[ARGS]{...}
  kDeepSeek,    // <｜tool▁calls▁begin｜>...
};

/// "deepseek_v3", "hermes", "llama3_json", "mistral", as vLLM names them, and "none".
const std::vector<std::string>& ToolFormatNames();
/// Throws UsageError with the nearest name.
ToolFormat ToolFormatNamed(std::string_view name);
/// The name that ToolFormatNamed reads.
std::string NameOf(ToolFormat format);

/// The format that a chat template's text shows its model to write; kNone if it shows none.
ToolFormat ToolFormatOf(std::string_view jinja);

}  // namespace trimtab
