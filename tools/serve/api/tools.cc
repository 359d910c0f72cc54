// Tools, and whether the answer must call one.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "tools/serve/api/asked.h"

namespace trimtab {
namespace {

enum class ToolChoice { kNone, kAuto, kRequired };

/// The functions that may be called. Throws InputError for tools of other kinds.
Json ReadFunctions(const FieldValue& tools) {
  Json read = Json::array();
  for (const FieldValue& tool : tools.List("a list of tools")) {
    tool.RequireObject();
    if (tool.At("type").Text() != "function") tool.At("type").Refuse("\"function\"");
    const FieldValue function = tool.At("function");
    function.RequireObject();
    if (function.At("name").Text().empty()) function.At("name").Refuse("a name");
    if (!function.At("parameters").null()) function.At("parameters").RequireObject();
    read.push_back(tool.json());
  }
  return read;
}

Json Named(const Json& tools, const FieldValue& name) {
  for (const Json& tool : tools) {
    if (tool["function"]["name"] == name.Text()) return Json::array({tool});
  }
  name.Refuse("the name of one of the tools");
}

/// Lets the references in a schema, which begin at its root, begin at `root`.
void MoveReferences(Json& schema, const std::string& root) {
  constexpr std::array<std::string_view, 4> kData = {"const", "enum", "default", "examples"};
  constexpr std::array<std::string_view, 5> kMaps = {"properties", "patternProperties", "$defs",
                                                     "definitions", "dependentSchemas"};
  if (schema.is_array()) {
    for (Json& each : schema) MoveReferences(each, root);
  }
  if (!schema.is_object()) return;
  for (auto& [key, value] : schema.items()) {
    if (key == "$ref" && value.is_string() &&
        value.get_ref<const std::string&>().starts_with('#')) {
      value = root + value.get<std::string>().substr(1);
    } else if (std::ranges::find(kMaps, key) != kMaps.end() && value.is_object()) {
      for (auto& [name, each] : value.items()) MoveReferences(each, root);  // names are no keywords
    } else if (std::ranges::find(kData, key) == kData.end()) {
      MoveReferences(value, root);
    }
  }
}

/// JSON schema of a call of one of the tools. Parameters are definitions of it, as their own
/// references are to what they define.
Json SchemaOf(const Json& tools) {
  Json calls = Json::array();
  Json definitions = Json::object();
  for (const Json& tool : tools) {
    const Json& function = tool["function"];
    Json parameters = function.contains("parameters") && !function["parameters"].is_null()
                          ? function["parameters"]
                          : Json{{"type", "object"}};
    const std::string name = fmt::format("parameters{}", calls.size());
    const std::string root = "#/$defs/" + name;
    MoveReferences(parameters, root);
    definitions[name] = std::move(parameters);
    Json properties = Json::object();
    properties["name"] = {{"const", function["name"]}};
    properties["parameters"] = {{"$ref", root}};
    Json call = {{"type", "object"}};
    call["properties"] = std::move(properties);
    call["required"] = Json::array({"name", "parameters"});
    call["additionalProperties"] = false;
    calls.push_back(std::move(call));
  }
  Json schema = calls.size() == 1 ? calls[0] : Json{{"anyOf", calls}};
  schema["$defs"] = std::move(definitions);
  return schema;
}

ToolChoice WordOf(const FieldValue& word) {
  if (word.Text() == "none") return ToolChoice::kNone;
  if (word.Text() == "auto") return ToolChoice::kAuto;
  if (word.Text() == "required") return ToolChoice::kRequired;
  word.Refuse("\"none\", \"auto\", \"required\", or a function");
}

/// Reads the choice, and leaves those tools that it allows.
ToolChoice ReadChoice(const FieldValue& choice, Json& tools) {
  if (choice.json().is_string()) return WordOf(choice);
  choice.RequireObject();
  const FieldValue type = choice.At("type");
  if (type.Text() == "function") {
    const FieldValue function = choice.At("function");
    function.RequireObject();
    tools = Named(tools, function.At("name"));
    return ToolChoice::kRequired;
  }
  if (type.Text() != "allowed_tools") type.Refuse("\"function\" or \"allowed_tools\"");
  const FieldValue allowed = choice.At("allowed_tools");
  allowed.RequireObject();
  Json kept = Json::array();
  for (const FieldValue& tool : allowed.At("tools").List("a list of tools")) {
    tool.RequireObject();
    tool.At("function").RequireObject();
    kept.push_back(Named(tools, tool.At("function").At("name"))[0]);
  }
  tools = std::move(kept);
  return WordOf(allowed.At("mode"));
}

}  // namespace

Json ReadTools(Asked& asked) {
  Json tools = asked.tools ? ReadFunctions(*asked.tools) : Json::array();
  ToolChoice choice = tools.empty() ? ToolChoice::kNone : ToolChoice::kAuto;
  if (asked.tool_choice) {
    choice = ReadChoice(*asked.tool_choice, tools);
    if (choice == ToolChoice::kRequired && tools.empty()) {
      asked.tool_choice->Refuse("\"none\" or \"auto\", as there are no tools");
    }
  }
  if (choice == ToolChoice::kNone || tools.empty()) return nullptr;
  AnswerOptions& answer = asked.out.answer;
  answer.one_call = !asked.parallel_calls;
  if (choice == ToolChoice::kRequired) {
    asked.grammars.emplace_back(
        "$.tool_choice", GrammarSource{GrammarSource::Kind::kJsonSchema, SchemaOf(tools).dump()});
    answer.tools = ToolFormat::kLlama3Json;
    return asked.model.chat->takes_tools() ? tools : Json();
  }
  const ChatTemplate& chat = *asked.model.chat;
  answer.tools = asked.model.tool_format.value_or(chat.tool_format());
  if (!chat.takes_tools()) {
    throw InputError(fmt::format(
        "$.tools: the chat template '{}' has no place for tools; expected none, or a tool_choice "
        "of \"required\" or a function",
        chat.name()));
  }
  if (answer.tools == ToolFormat::kNone && !asked.model.tool_format) {
    throw InputError(fmt::format(
        "$.tools: the chat template '{}' does not show how calls are written; expected none, or a "
        "server with --tool-call-parser",
        chat.name()));
  }
  return tools;
}

}  // namespace trimtab
