#include "engine/data/vocabulary/hugging_face_vocabulary.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "engine/base/error.h"
#include "engine/config/strict_json.h"
#include "engine/data/byte_alphabet.h"
#include "engine/data/tokenizer_config.h"
#include "engine/data/vocabulary/hugging_face_json.h"

namespace trimtab {
namespace {

using nlohmann::json;

class Reader {
 public:
  Reader(const json& root, const std::string& name, int64_t most_ids)
      : name_(name), most_ids_(most_ids) {
    StrictObject object(root, name + ": $");
    std::string version = "1.0";
    const std::string versions[] = {"1.0"};
    object.Choice("version", version, versions);
    object.Find("truncation");
    object.Find("padding");
    const json* added = object.Find("added_tokens");
    const json* normalizer = object.Find("normalizer");
    const json* pre_tokenizer = object.Find("pre_tokenizer", Need::kRequired);
    const json* post_processor = object.Find("post_processor");
    const json* decoder = object.Find("decoder", Need::kRequired);
    const json* model = object.Find("model", Need::kRequired);
    object.Finish();
    ReadModel(*model, object.Where("model"));
    if (added != nullptr) ReadAddedTokens(*added, object.Where("added_tokens"));
    if (normalizer != nullptr && !normalizer->is_null()) {
      ReadNormalizer(*normalizer, object.Where("normalizer"));
    }
    out_.steps = ReadSplitSteps(*pre_tokenizer, object.Where("pre_tokenizer"));
    if (post_processor != nullptr && !post_processor->is_null()) {
      ReadPostProcessor(*post_processor, object.Where("post_processor"));
    }
    ReadDecoder(*decoder, object.Where("decoder"));
  }

  HuggingFaceVocabulary Take() { return std::move(out_); }

 private:
  void ReadModel(const json& model, const std::string& where) {
    const std::string type = TypeOf(model, where);
    if (type != "BPE") RefuseJson(where + ".type", "BPE", model["type"]);
    StrictObject object(model, where);
    object.Find("type");
    for (const char* key : {"dropout", "unk_token"}) {
      const json* value = object.Find(key);
      if (value != nullptr && !value->is_null()) object.Refuse(key, "null");
    }
    for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
      const json* value = object.Find(key);
      if (value != nullptr && !value->is_null() && *value != "") object.Refuse(key, "null or \"\"");
    }
    bool fuse_unknown = false;  // of no consequence: every byte has a token
    object.Boolean("fuse_unk", fuse_unknown);
    bool byte_fallback = false;
    object.Boolean("byte_fallback", byte_fallback);
    if (byte_fallback) object.Refuse("byte_fallback", "false, with a byte-level vocabulary");
    object.Boolean("ignore_merges", out_.whole_words_first);
    const json* vocab = object.Find("vocab", Need::kRequired);
    const json* merges = object.Find("merges", Need::kRequired);
    object.Finish();
    ReadVocab(*vocab, object.Where("vocab"));
    for (int byte = 0; byte < 256; ++byte) {
      const std::string character = ByteCharacter(static_cast<uint8_t>(byte));
      const auto found = ids_.find(character);
      if (found == ids_.end()) {
        throw InputError(
            fmt::format("{}: expected a token for each of the 256 bytes; '{}' (0x{:02x}) "
                        "is missing",
                        object.Where("vocab"), character, byte));
      }
      out_.byte_ids[static_cast<size_t>(byte)] = found->second;
    }
    ReadMerges(*merges, object.Where("merges"));
  }

  void ReadVocab(const json& vocab, const std::string& where) {
    if (!vocab.is_object()) RefuseJson(where, "an object of tokens and ids", vocab);
    for (const auto& [token, id] : vocab.items()) {
      AddToken(token, id, fmt::format("{}[{}]", where, json(token).dump()),
               BytesOfToken(token).value_or(token));
    }
  }

  /// A token that is not there yet.
  void AddToken(const std::string& token, const json& id, const std::string& where,
                std::string bytes) {
    if (!id.is_number_integer() || id < 0 || id > kMaxTokenId) {
      RefuseJson(where, fmt::format("an id from 0 to {}", kMaxTokenId), id);
    }
    const auto place = id.get<size_t>();
    if (place >= out_.tokens.size()) {
      out_.tokens.resize(place + 1);
      out_.special.resize(place + 1);
    }
    if (out_.tokens[place]) RefuseJson(where, "an id that no other token has", id);
    out_.tokens[place] = std::move(bytes);
    ids_[token] = static_cast<int32_t>(place);
  }

  int32_t IdOf(const std::string& token, const std::string& where) const {
    const auto found = ids_.find(token);
    if (found != ids_.end()) return found->second;
    throw InputError(fmt::format("{}: '{}' is not in $.model.vocab", where, token));
  }

  void ReadMerges(const json& merges, const std::string& where) {
    if (!merges.is_array()) RefuseJson(where, "a list of pairs", merges);
    for (size_t i = 0; i < merges.size(); ++i) {
      const std::string here = fmt::format("{}[{}]", where, i);
      const auto [left, right] = ReadPair(merges[i], here);
      const int32_t merged = IdOf(left + right, here);
      if (!out_.merges.Add(IdOf(left, here), IdOf(right, here), merged)) {
        RefuseJson(here, "a pair that was not there before", merges[i]);
      }
    }
  }

  static std::pair<std::string, std::string> ReadPair(const json& merge, const std::string& where) {
    if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
      return {merge[0].get<std::string>(), merge[1].get<std::string>()};
    }
    if (merge.is_string()) {
      const auto& pair = merge.get_ref<const std::string&>();
      const size_t blank = pair.find(' ');
      if (blank != std::string::npos && pair.find(' ', blank + 1) == std::string::npos) {
        return {pair.substr(0, blank), pair.substr(blank + 1)};
      }
    }
    RefuseJson(where, "two tokens, as \"a b\" or [\"a\", \"b\"]", merge);
  }

  void ReadAddedTokens(const json& added, const std::string& where) {
    if (!added.is_array()) RefuseJson(where, "a list", added);
    for (size_t i = 0; i < added.size(); ++i) {
      ReadAddedToken(added[i], fmt::format("{}[{}]", where, i));
    }
  }

  void ReadAddedToken(const json& added, const std::string& where) {
    StrictObject object(added, where);
    int64_t id = 0;
    std::string content;
    bool special = false;
    bool normalized = true;
    object.Integer("id", id, 0, kMaxTokenId, Need::kRequired);
    object.Text("content", content, Need::kRequired);
    object.Boolean("special", special);
    object.Boolean("normalized", normalized);
    for (const char* key : {"single_word", "lstrip", "rstrip"}) {
      bool value = false;
      object.Boolean(key, value);
      if (value) object.Refuse(key, "false");
    }
    object.Finish();
    if (content.empty()) object.Refuse("content", "some text");
    if (id >= most_ids_) {
      ++out_.left_out;
      return;
    }
    const auto known = ids_.find(content);
    if (known == ids_.end()) {
      AddToken(content, id, object.Where("id"), content);
    } else if (known->second != id) {
      object.Refuse("id", fmt::format("{}, as in $.model.vocab", known->second));
    }
    const auto place = static_cast<size_t>(id);
    out_.tokens[place] = content;
    out_.special[place] = special;
    if (special) out_.special_names.push_back(content);
    HuggingFaceVocabulary::Added& group =
        normalized ? out_.after_normalizing : out_.before_normalizing;
    group.all.Add(content, static_cast<int32_t>(id));
    if (!special) group.not_special.Add(content, static_cast<int32_t>(id));
  }

  void ReadNormalizer(const json& normalizer, const std::string& where) {
    const std::string type = TypeOf(normalizer, where);
    if (type == "Sequence") {
      ForEachOf(normalizer, where, "normalizers",
                [this](const json& each, const std::string& here) { ReadNormalizer(each, here); });
      return;
    }
    const std::optional<NormalForm> form = NormalFormOf(type);
    if (!form) RefuseJson(where + ".type", "NFC, NFD, NFKC, NFKD or Sequence", normalizer["type"]);
    StrictObject object(normalizer, where);
    object.Find("type");
    object.Finish();
    out_.normal_forms.push_back(*form);
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
      std::string id;
      special.Text("id", id, Need::kRequired);
      special.Find("type_id");
      special.Finish();
      out_.prompt_prefix.push_back(IdOf(id, special.Where("id")));
    }
  }

  void ReadDecoder(const json& decoder, const std::string& where) {
    const std::string type = TypeOf(decoder, where);
    if (type == "Sequence") {
      ForEachOf(decoder, where, "decoders",
                [this](const json& each, const std::string& here) { ReadDecoder(each, here); });
    } else if (type != "ByteLevel") {
      RefuseJson(where + ".type", "ByteLevel", decoder["type"]);
    }
  }

  const std::string& name_;
  const int64_t most_ids_;
  HuggingFaceVocabulary out_;
  std::unordered_map<std::string, int32_t> ids_;
};

}  // namespace

std::optional<int32_t> HuggingFaceVocabulary::SpecialId(std::string_view name) const {
  for (const Added* group : {&before_normalizing, &after_normalizing}) {
    const std::optional<int32_t> id = group->all.Find(name);
    if (id && special[static_cast<size_t>(*id)]) return id;
  }
  return std::nullopt;
}

HuggingFaceVocabulary ReadHuggingFaceVocabulary(const std::string& text, const std::string& name,
                                                int64_t most_ids) {
  const json root = ParseJsonText(text, name);
  return Reader(root, name, most_ids).Take();
}

}  // namespace trimtab
