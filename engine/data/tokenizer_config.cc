#include "engine/data/tokenizer_config.h"

#include <nlohmann/json.hpp>

#include "engine/base/error.h"
#include "engine/config/strict_json.h"

namespace trimtab {
namespace {

using nlohmann::json;

/// A token is given by its name, or as an object with that as its content.
std::string TokenName(StrictObject& object, const std::string& key) {
  const json* token = object.Find(key);
  if (token == nullptr || token->is_null()) return "";
  if (token->is_string()) return token->get<std::string>();
  if (token->is_object() && token->contains("content") && (*token)["content"].is_string()) {
    return (*token)["content"].get<std::string>();
  }
  object.Refuse(key, "the name of a token, or an object with it as 'content'");
}

/// One template, or several of which one is named "default".
std::string TemplateText(const StrictObject& object, const json& templates) {
  if (templates.is_string()) return templates.get<std::string>();
  if (templates.is_array()) {
    for (const json& each : templates) {
      if (each.is_object() && each.value("name", json()) == "default" &&
          each.value("template", json()).is_string()) {
        return each["template"].get<std::string>();
      }
    }
  }
  object.Refuse("chat_template", "a template, or a list with one whose name is 'default'");
}

}  // namespace

TokenizerConfig ReadTokenizerConfig(const std::string& text, const std::string& path) {
  const json root = ParseJsonText(text, path);
  StrictObject object(root, path + ": $");
  TokenizerConfig config;
  config.eos_token = TokenName(object, "eos_token");
  config.bos_token = TokenName(object, "bos_token");
  const json* bos = object.Find("add_bos_token");
  if (bos != nullptr && !bos->is_null()) {
    bool add = false;
    object.Boolean("add_bos_token", add);
    config.add_bos_token = add;
  }
  const json* templates = object.Find("chat_template");
  if (templates != nullptr && !templates->is_null()) {
    config.chat_template = TemplateText(object, *templates);
  }
  return config;
}

std::string ToJsonText(const TokenizerConfig& config) {
  json root = json::object();
  if (!config.eos_token.empty()) root["eos_token"] = config.eos_token;
  if (!config.bos_token.empty()) root["bos_token"] = config.bos_token;
  if (config.add_bos_token) root["add_bos_token"] = *config.add_bos_token;
  if (!config.chat_template.empty()) root["chat_template"] = config.chat_template;
  return root.dump(1) + "\n";
}

}  // namespace trimtab
