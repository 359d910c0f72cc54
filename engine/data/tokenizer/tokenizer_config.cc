#include "engine/data/tokenizer/tokenizer_config.h"

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>

#include "engine/base/error.h"
#include "engine/base/log.h"
#include "engine/config/json/strict_json.h"

namespace trimtab {
namespace {

using nlohmann::json;

constexpr char kDefaultTemplate[] = "default";

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
void ReadTemplates(const StrictObject& object, const json& templates, TokenizerConfig& config) {
  if (templates.is_string()) {
    SetChatTemplate(config, kDefaultTemplate, templates.get<std::string>());
    return;
  }
  bool has_default = false;
  bool well_formed = templates.is_array();
  for (const json& each : well_formed ? templates : json::array()) {
    well_formed = well_formed && each.is_object() && each.value("name", json()).is_string() &&
                  each.value("template", json()).is_string();
    if (!well_formed) break;
    const auto name = each["name"].get<std::string>();
    has_default |= name == kDefaultTemplate;
    SetChatTemplate(config, name, each["template"].get<std::string>());
  }
  if (well_formed && has_default) return;
  object.Refuse("chat_template",
                "a template, or a list of objects with 'name' and 'template', one of them named "
                "'default'");
}

/// The text of a token where `value` is one, as a text or as an object with its content.
std::optional<std::string> TokenText(const json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_object() && value.value("content", json()).is_string()) {
    return value["content"].get<std::string>();
  }
  return std::nullopt;
}

/// Every other key that names a special token: "unk_token", "image_token".
void ReadOtherTokens(const json& root, TokenizerConfig& config) {
  const auto read = [&config](const json& tokens, std::string_view suffix) {
    for (const auto& [key, value] : tokens.items()) {
      if (!key.ends_with(suffix) || key == "eos_token" || key == "bos_token") continue;
      if (auto text = TokenText(value)) config.other_tokens.emplace_back(key, *std::move(text));
    }
  };
  read(root, "_token");
  for (const char* more : {"extra_special_tokens", "model_specific_special_tokens"}) {
    if (root.contains(more) && root[more].is_object()) read(root[more], "");
  }
}

/// `added_tokens_decoder`: objects by id.
std::vector<AddedToken> AddedTokens(const json& decoder, const std::string& where) {
  std::vector<AddedToken> all;
  StrictObject objects(decoder, where);
  for (const auto& [key, value] : decoder.items()) {
    AddedToken token;
    const auto [last, error] = std::from_chars(key.data(), key.data() + key.size(), token.id);
    if (error != std::errc() || last != key.data() + key.size() || token.id < 0 ||
        token.id > kMaxTokenId) {
      throw InputError(
          fmt::format("{}: expected ids from 0 to {} as keys, got '{}'", where, kMaxTokenId, key));
    }
    StrictObject object(value, objects.Where(key));
    object.Text("content", token.name, Need::kRequired);
    object.Boolean("special", token.special);
    object.Boolean("normalized", token.normalized);
    object.Boolean("single_word", token.rules.whole_word);
    object.Boolean("lstrip", token.rules.takes_space_before);
    object.Boolean("rstrip", token.rules.takes_space_behind);
    if (token.name.empty()) object.Refuse("content", "some text");
    all.push_back(std::move(token));
  }
  std::ranges::sort(all, {}, &AddedToken::id);
  return all;
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
  const json* name = object.Find("tokenizer_class");
  if (name != nullptr && !name->is_null()) object.Text("tokenizer_class", config.tokenizer_class);
  const json* space = object.Find("add_prefix_space");
  if (space != nullptr && !space->is_null()) {
    object.Boolean("add_prefix_space", config.add_prefix_space);
  }
  const json* templates = object.Find("chat_template");
  if (templates != nullptr && !templates->is_null()) {
    ReadTemplates(object, *templates, config);
  }
  ReadOtherTokens(root, config);
  const json* added = object.Find("added_tokens_decoder");
  if (added != nullptr && !added->is_null()) {
    config.added_tokens = AddedTokens(*added, object.Where("added_tokens_decoder"));
  }
  return config;
}

void SetChatTemplate(TokenizerConfig& config, const std::string& name, std::string text) {
  const auto found =
      std::ranges::find(config.chat_templates, name, &std::pair<std::string, std::string>::first);
  if (found != config.chat_templates.end()) {
    found->second = std::move(text);
  } else {
    config.chat_templates.emplace_back(name, std::move(text));
  }
}

ChatFormat ChatFormatOf(const TokenizerConfig& config) {
  ChatFormat format = {config.chat_templates, config.other_tokens};
  if (!config.bos_token.empty()) format.tokens.emplace_back("bos_token", config.bos_token);
  if (!config.eos_token.empty()) format.tokens.emplace_back("eos_token", config.eos_token);
  return format;
}

void WarnOfLeftOut(int64_t count, const std::string& path, int64_t most_ids) {
  if (count == 0) return;
  LogWarning("{}: {} added token{} left out: the model has no id above {}", path, count,
             count == 1 ? " is" : "s are", most_ids - 1);
}

void ReadAddedTokens(const std::string& text, const std::string& path, TokenizerConfig& config) {
  const json root = ParseJsonText(text, path);
  StrictObject object(root, path + ": $");
  for (const auto& [name, value] : root.items()) {
    AddedToken token = {.name = name};
    int64_t id = 0;
    object.Integer(name, id, 0, kMaxTokenId);
    token.id = static_cast<int32_t>(id);
    if (name.empty()) object.Refuse(name, "no token without a name");
    token.special = (name.starts_with('<') && name.ends_with('>')) ||
                    (name.starts_with('[') && name.ends_with(']'));
    const auto has_id = [&](const AddedToken& each) { return each.id == token.id; };
    if (std::ranges::none_of(config.added_tokens, has_id)) {
      config.added_tokens.push_back(std::move(token));
    }
  }
}

std::string ToJsonText(const TokenizerConfig& config) {
  json root = json::object();
  if (!config.eos_token.empty()) root["eos_token"] = config.eos_token;
  if (!config.bos_token.empty()) root["bos_token"] = config.bos_token;
  if (config.add_bos_token) root["add_bos_token"] = *config.add_bos_token;
  if (!config.tokenizer_class.empty()) root["tokenizer_class"] = config.tokenizer_class;
  if (config.add_prefix_space) root["add_prefix_space"] = true;
  for (const auto& [key, text] : config.other_tokens) root[key] = text;
  if (config.chat_templates.size() == 1) {
    root["chat_template"] = config.chat_templates[0].second;
  } else {
    for (const auto& [name, text] : config.chat_templates) {
      root["chat_template"].push_back({{"name", name}, {"template", text}});
    }
  }
  for (const AddedToken& each : config.added_tokens) {
    root["added_tokens_decoder"][std::to_string(each.id)] = {
        {"content", each.name},
        {"lstrip", each.rules.takes_space_before},
        {"normalized", each.normalized},
        {"rstrip", each.rules.takes_space_behind},
        {"single_word", each.rules.whole_word},
        {"special", each.special}};
  }
  return root.dump(1) + "\n";
}

}  // namespace trimtab
