#include "engine/data/vocabulary/hugging_face_vocabulary.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/log.h"
#include "engine/config/json/strict_json.h"
#include "engine/data/vocabulary/hugging_face_json.h"
#include "engine/data/vocabulary/token_decoder.h"

namespace trimtab {
namespace {

using nlohmann::json;

/// A token that is found by its name.
struct NamedToken {
  AddedToken token;
  NameRules rules;
  bool normalized = true;
};

class Reader {
 public:
  Reader(const json& root, const std::string& name, const TokenizerConfig& config, int64_t most_ids)
      : name_(name), config_(config), most_ids_(most_ids) {
    StrictObject object(root, name + ": $");
    std::string version = "1.0";
    const std::string versions[] = {"1.0"};
    object.Choice("version", version, versions);
    object.Find("truncation");
    object.Find("padding");
    const json null;
    const auto part = [&](const char* key) {
      const json* value = object.Find(key);
      return value == nullptr ? &null : value;
    };
    const json* added = part("added_tokens");
    const json* normalizer = part("normalizer");
    const json* pre_tokenizer = part("pre_tokenizer");
    const json* post_processor = part("post_processor");
    const json* decoder = object.Find("decoder", Need::kRequired);
    const json* model = object.Find("model", Need::kRequired);
    object.Finish();
    out_.normalizer = Normalizer(*normalizer, object.Where("normalizer"));
    out_.pre_tokenizer =
        PreTokenizer(*pre_tokenizer, object.Where("pre_tokenizer"), out_.normalizer.byte_level());
    const bool byte_level = out_.pre_tokenizer.byte_level();
    const auto rules = std::make_shared<TokenDecoder>(*decoder, object.Where("decoder"));
    if (rules->byte_level() != byte_level) {
      RefuseJson(object.Where("decoder"),
                 byte_level ? "one with a 'ByteLevel', as the pre_tokenizer has"
                            : "one without 'ByteLevel', as the pre_tokenizer has none",
                 *decoder);
    }
    out_.decoder = rules;
    out_.model = ReadWordModel(*model, object.Where("model"), byte_level);
    for (const auto& [token, id] : out_.model->ids()) {
      At(id) = {rules->BytesOf(token), rules->FirstBytesOf(token)};
    }
    if (!added->is_null()) ReadAddedTokens(*added, object.Where("added_tokens"));
    AddTokensBeside();
    out_.model->Exclude(out_.special_names);
    if (!post_processor->is_null()) {
      ReadPostProcessor(*post_processor, object.Where("post_processor"));
    }
  }

  HuggingFaceVocabulary Take() { return std::move(out_); }

 private:
  std::optional<HuggingFaceVocabulary::Token>& At(int64_t id) {
    const auto place = static_cast<size_t>(id);
    if (place >= out_.tokens.size()) out_.tokens.resize(place + 1);
    return out_.tokens[place];
  }

  std::optional<int32_t> Find(const std::string& token) const {
    for (const TokenIds* ids : {&out_.model->ids(), &added_ids_}) {
      if (const auto found = ids->find(token); found != ids->end()) return found->second;
    }
    return std::nullopt;
  }

  void ReadAddedTokens(const json& added, const std::string& where) {
    if (!added.is_array()) RefuseJson(where, "a list", added);
    for (size_t i = 0; i < added.size(); ++i) {
      ReadAddedToken(added[i], fmt::format("{}[{}]", where, i));
    }
  }

  void ReadAddedToken(const json& added, const std::string& where) {
    StrictObject object(added, where);
    NamedToken named;
    int64_t id = 0;
    object.Integer("id", id, 0, kMaxTokenId, Need::kRequired);
    object.Text("content", named.token.name, Need::kRequired);
    object.Boolean("special", named.token.special);
    object.Boolean("normalized", named.normalized);
    object.Boolean("single_word", named.rules.whole_word);
    object.Boolean("lstrip", named.rules.takes_space_before);
    object.Boolean("rstrip", named.rules.takes_space_behind);
    object.Finish();
    if (named.token.name.empty()) object.Refuse("content", "some text");
    named.token.id = static_cast<int32_t>(id);
    // Whatever the file says: no text may have the end of a document in it.
    named.token.special = named.token.special || named.token.name == config_.eos_token ||
                          named.token.name == config_.bos_token;
    Add(named, object.Where("id"));
  }

  /// True if the id of a token that is said beside the file has another name there, or the name
  /// another id.
  bool Contradicts(const AddedToken& token) const {
    if (const std::optional<int32_t> known = Find(token.name)) return *known != token.id;
    const auto place = static_cast<size_t>(token.id);
    return place < out_.tokens.size() && out_.tokens[place].has_value();
  }

  /// Adds tokens that are said beside the file, which may lack them or not say that they are
  /// special.
  void AddTokensBeside() {
    const std::string where = name_ + ": $.added_tokens";
    for (const AddedToken& each : config_.added_tokens) {
      if (added_ids_.contains(each.name)) continue;
      if (Contradicts(each)) {
        LogWarning("{}: '{}' with the id {}, of what is beside it, contradicts it: left out", where,
                   each.name, each.id);
        continue;
      }
      Add({.token = each, .rules = each.rules, .normalized = each.normalized}, where);
    }
    for (const std::string& name : {config_.bos_token, config_.eos_token}) {
      const std::optional<int32_t> id = Find(name);
      if (!id || out_.special_ids.contains(name)) continue;
      Add({.token = {.id = *id, .name = name, .special = true}, .rules = {}, .normalized = false},
          where);
    }
  }

  void Add(const NamedToken& named, const std::string& where) {
    const AddedToken& token = named.token;
    if (token.id >= most_ids_) {
      ++out_.left_out;
      return;
    }
    const std::optional<int32_t> known = Find(token.name);
    std::optional<HuggingFaceVocabulary::Token>& place = At(token.id);
    if (known ? *known != token.id : place.has_value()) {
      throw InputError(fmt::format(
          "{}: expected {}, got {} for '{}'", where,
          known ? fmt::format("{}, as in $.model.vocab", *known) : "an id that no other token has",
          token.id, token.name));
    }
    added_ids_[token.name] = token.id;
    const std::string name = named.normalized ? out_.normalizer.Apply(token.name) : token.name;
    place = {.special = token.special};
    if (!token.special) {
      // A name in the alphabet of bytes ("\u00f1") is characters all the same.
      const TokenDecoder& rules = *out_.decoder;
      place->bytes = rules.byte_level() ? token.name : rules.BytesOf(name);
      place->first_bytes = rules.byte_level() ? token.name : rules.FirstBytesOf(name);
    } else {
      if (out_.special_ids.emplace(token.name, token.id).second) {
        out_.special_names.push_back(token.name);
      }
    }
    HuggingFaceVocabulary::Added& group =
        named.normalized ? out_.after_normalizing : out_.before_normalizing;
    if (name.empty()) return;
    group.all.Add(name, token.id, named.rules);
    if (!token.special) group.not_special.Add(name, token.id, named.rules);
  }

  void ReadPostProcessor(const json& post, const std::string& where) {
    const std::string type = TypeOf(post, where);
    if (type == "Sequence") {
      ForEachOf(post, where, "processors", [this](const json& each, const std::string& here) {
        ReadPostProcessor(each, here);
      });
    } else if (type == "TemplateProcessing") {
      ReadTemplate(post, where);
    } else if (type != "ByteLevel") {  // which only moves offsets
      RefuseJson(where + ".type", "ByteLevel, TemplateProcessing or Sequence", post["type"]);
    }
  }

  /// What stands before a single text.
  void ReadTemplate(const json& post, const std::string& where) {
    StrictObject object(post, where);
    object.Find("type");
    const json* single = object.Find("single", Need::kRequired);
    object.Find("pair");            // of two texts, which are never given
    object.Find("special_tokens");  // the ids again
    object.Finish();
    if (!single->is_array() || single->empty()) object.Refuse("single", "a list");
    for (size_t i = 0; i < single->size(); ++i) {
      const std::string here = fmt::format("{}[{}]", object.Where("single"), i);
      const bool last = i + 1 == single->size();
      StrictObject item((*single)[i], here);
      const json* text = item.Find("Sequence");
      const json* token = item.Find("SpecialToken");
      item.Finish();
      if (last != (text != nullptr) || last == (token != nullptr)) {
        RefuseJson(here,
                   last ? "the text, at the end of the list" : "a special token before the text",
                   (*single)[i]);
      }
      if (last) continue;
      StrictObject special(*token, item.Where("SpecialToken"));
      std::string name;
      special.Text("id", name, Need::kRequired);
      special.Find("type_id");
      special.Finish();
      const std::optional<int32_t> id = Find(name);
      if (!id) special.Refuse("id", "a token of $.model.vocab or $.added_tokens");
      out_.prompt_prefix.push_back(*id);
    }
  }

  const std::string& name_;
  const TokenizerConfig& config_;
  const int64_t most_ids_;
  HuggingFaceVocabulary out_;
  TokenIds added_ids_;
};

}  // namespace

std::optional<int32_t> HuggingFaceVocabulary::SpecialId(std::string_view name) const {
  const auto found = special_ids.find(name);
  if (found == special_ids.end()) return std::nullopt;
  return found->second;
}

HuggingFaceVocabulary ReadHuggingFaceVocabulary(const std::string& text, const std::string& name,
                                                const TokenizerConfig& config, int64_t most_ids) {
  const json root = ParseJsonText(text, name);
  return Reader(root, name, config, most_ids).Take();
}

}  // namespace trimtab
