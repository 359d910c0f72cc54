#include "tools/serve/openapi.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "tools/cli/version.h"
#include "tools/serve/api/field.h"
#include "tools/serve/routes.h"

namespace trimtab {
namespace {

using nlohmann::json;

json SchemaOf(const Field& field) {
  json schema = json::parse("{" + std::string(field.type) + "}");
  const char* kind = field.kind == FieldKind::kTaken     ? "taken"
                     : field.kind == FieldKind::kNothing ? "changes nothing"
                                                         : "neutral values only";
  schema["description"] = std::string(field.note);
  schema["x-kind"] = kind;
  if (field.kind == FieldKind::kNeutral) schema["enum"] = json::parse(field.neutral);
  return schema;
}

std::vector<std::string> RequiredOf(Endpoint endpoint) {
  if (endpoint == kChat) return {"messages"};
  if (endpoint == kResponses || endpoint == kEmbeddings) return {"input"};
  if (endpoint == kCompletions) return {"prompt"};
  if (endpoint == kDetokenize) return {"tokens"};
  return {};
}

json BodyOf(const Route& route) {
  json properties = json::object();
  for (const Field* field : FieldsOf(route.endpoint)) {
    properties[std::string(field->name)] = SchemaOf(*field);
  }
  json schema = {{"type", "object"}, {"properties", std::move(properties)}};
  schema["required"] = RequiredOf(route.endpoint);
  return {{"required", true}, {"content", {{"application/json", {{"schema", schema}}}}}};
}

json Content(const char* type) { return {{type, json::object()}}; }

json AnswersOf(const Route& route) {
  json good = {{"description", std::string(route.summary)}};
  const char* type = route.handler == Handler::kPage      ? "text/html"
                     : route.handler == Handler::kMetrics ? "text/plain"
                                                          : "application/json";
  good["content"] = Content(type);
  if (route.handler == Handler::kGenerate && route.endpoint != kEmbeddings) {
    good["content"].update(Content("text/event-stream"));
  }
  json answers = {{"200", good}};
  if (route.post()) {
    answers["400"] = {{"description", "a body that cannot be understood, or is refused"}};
    answers["503"] = {{"description", "too many requests, draining, or failed"}};
  }
  return answers;
}

/// "POST /v1/chat/completions" as an identifier: "postV1ChatCompletions".
std::string IdOf(const Route& route) {
  std::string id = route.post() ? "post" : "get";
  bool upper = true;
  for (const char c : route.path == "/" ? std::string_view("/page") : route.path) {
    const bool letter = std::isalnum(static_cast<unsigned char>(c)) != 0;
    if (letter) id += upper ? static_cast<char>(std::toupper(c)) : c;
    upper = !letter;
    if (c == '*') id += "Name";
  }
  return id;
}

}  // namespace

json OpenApi(const std::string& model, bool needs_key) {
  json paths = json::object();
  for (const Route& route : AllRoutes()) {
    if (route.handler == Handler::kRefused) continue;
    std::string path(route.path);
    json operation = {{"operationId", IdOf(route)},
                      {"summary", std::string(route.summary)},
                      {"responses", AnswersOf(route)}};
    if (path.ends_with('*')) {
      path.replace(path.size() - 1, 1, "{name}");
      operation["parameters"] = json::array({{{"name", "name"},
                                              {"in", "path"},
                                              {"required", true},
                                              {"schema", {{"type", "string"}}}}});
    }
    if (route.post()) operation["requestBody"] = BodyOf(route);
    if (route.open()) operation["security"] = json::array();
    paths[path][route.post() ? "post" : "get"] = std::move(operation);
  }
  json out = {{"openapi", "3.1.0"},
              {"info", {{"title", fmt::format("trimtab serve: {}", model)}, {"version", kVersion}}},
              {"paths", std::move(paths)}};
  if (needs_key) {
    out["components"]["securitySchemes"]["key"] = {{"type", "http"}, {"scheme", "bearer"}};
    out["security"] = json::array({{{"key", json::array()}}});
  }
  return out;
}

}  // namespace trimtab
