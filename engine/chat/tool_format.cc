#include "engine/chat/tool_format.h"

#include <fmt/core.h>

#include <algorithm>

#include "engine/base/error.h"
#include "engine/base/nearest_name.h"

namespace trimtab {
namespace {

struct Row {
  const char* name;
  ToolFormat format;
  std::vector<const char*> signs;  // in templates; the first row with one of them counts
};

const std::vector<Row>& Rows() {
  static const std::vector<Row> kRows = {
      {"deepseek_v3", ToolFormat::kDeepSeek, {"<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>"}},
      {"none", ToolFormat::kNone, {"<function="}},  // XML, as Qwen3-Coder writes it
      {"hermes", ToolFormat::kHermes, {"<tool_call>"}},
      {"mistral", ToolFormat::kMistral, {"[TOOL_CALLS]"}},
      {"llama3_json",
       ToolFormat::kLlama3Json,
       {"<|python_tag|>", "\"parameters\": dictionary of argument name"}},
  };
  return kRows;
}

}  // namespace

const std::vector<std::string>& ToolFormatNames() {
  static const std::vector<std::string> kNames = [] {
    std::vector<std::string> names;
    for (const Row& row : Rows()) names.emplace_back(row.name);
    std::ranges::sort(names);
    return names;
  }();
  return kNames;
}

ToolFormat ToolFormatNamed(std::string_view name) {
  for (const Row& row : Rows()) {
    if (row.name == name) return row.format;
  }
  throw UsageError(fmt::format("unknown format of tool calls '{}'{}", name,
                               SuggestName(name, ToolFormatNames())));
}

std::string NameOf(ToolFormat format) {
  const auto row = std::ranges::find(Rows(), format, &Row::format);
  return row->name;
}

ToolFormat ToolFormatOf(std::string_view jinja) {
  for (const Row& row : Rows()) {
    for (const char* sign : row.signs) {
      if (jinja.find(sign) != std::string_view::npos) return row.format;
    }
  }
  return ToolFormat::kNone;
}

}  // namespace trimtab
