#include "engine/data/vocabulary/token_decoder.h"

#include <charconv>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "engine/data/tokenizer/byte_alphabet.h"
#include "engine/data/vocabulary/characters.h"
#include "engine/data/vocabulary/hugging_face_json.h"
#include "engine/data/vocabulary/metaspace.h"

namespace trimtab {
namespace {

using nlohmann::json;

std::string Replaced(std::string_view text, std::string_view from, std::string_view to) {
  std::string result;
  for (size_t at = 0; at < text.size();) {
    if (text.substr(at).starts_with(from)) {
      result += to;
      at += from.size();
    } else {
      result += text[at++];
    }
  }
  return result;
}

/// The byte that a token "<0x0A>" stands for; any other stays.
std::string ByteOrToken(std::string_view token, bool /*first*/) {
  uint8_t byte = 0;
  if (token.size() == 6 && token.starts_with("<0x") && token.ends_with('>')) {
    const auto [end, error] = std::from_chars(token.data() + 3, token.data() + 5, byte, 16);
    if (error == std::errc() && end == token.data() + 5) return {static_cast<char>(byte)};
  }
  return std::string(token);
}

}  // namespace

TokenDecoder::TokenDecoder(const json& decoder, const std::string& where) { Read(decoder, where); }

std::string TokenDecoder::BytesOf(std::string_view token) const {
  std::string bytes(token);
  for (const Step& step : steps_) bytes = step(bytes, /*first=*/false);
  return bytes;
}

std::string TokenDecoder::FirstBytesOf(std::string_view token) const {
  std::string bytes(token);
  for (const Step& step : steps_) bytes = step(bytes, /*first=*/true);
  return bytes;
}

void TokenDecoder::Trim(std::string& text) const {
  std::string_view rest = text;
  for (int64_t i = 0; i < trim_begin_ && rest.starts_with(trimmed_); ++i) {
    rest.remove_prefix(trimmed_.size());
  }
  for (int64_t i = 0; i < trim_end_ && rest.ends_with(trimmed_); ++i) {
    rest.remove_suffix(trimmed_.size());
  }
  if (rest.size() != text.size()) text = std::string(rest);
}

void TokenDecoder::ReadReplace(const json& step, const std::string& where) {
  StrictObject object(step, where);
  object.Find("type");
  std::string content;
  object.Text("content", content, Need::kRequired);
  const json* pattern = object.Find("pattern", Need::kRequired);
  object.Finish();
  StrictObject choice(*pattern, object.Where("pattern"));
  std::string from;
  choice.Text("String", from, Need::kRequired);
  choice.Finish();
  if (from.empty()) choice.Refuse("String", "some text");
  // In a whole text a longer one could begin in one token and end in the next.
  if (fused_ && CharacterAt(from, 0).bytes != from.size()) {
    choice.Refuse("String", "one character, behind a 'Fuse'");
  }
  steps_.emplace_back(
      [from, content](std::string_view token, bool) { return Replaced(token, from, content); });
}

void TokenDecoder::ReadStrip(const json& step, const std::string& where) {
  StrictObject object(step, where);
  object.Find("type");
  object.Text("content", trimmed_, Need::kRequired);
  object.Integer("start", trim_begin_, 0, INT32_MAX, Need::kRequired);
  object.Integer("stop", trim_end_, 0, INT32_MAX, Need::kRequired);
  object.Finish();
  if (trimmed_.empty()) object.Refuse("content", "a character");
  if (!fused_) RefuseJson(where, "a 'Fuse' before it: it is for whole texts", step);
}

void TokenDecoder::Read(const json& step, const std::string& where) {
  const std::string type = TypeOf(step, where);
  if (type == "Sequence") {
    ForEachOf(step, where, "decoders",
              [this](const json& each, const std::string& here) { Read(each, here); });
    return;
  }
  if (!trimmed_.empty()) RefuseJson(where, "nothing behind 'Strip'", step);
  if (type == "Replace") return ReadReplace(step, where);
  if (type == "Strip") return ReadStrip(step, where);
  StrictObject object(step, where);
  object.Find("type");
  if (type == "ByteLevel") {
    for (const char* key : {"add_prefix_space", "trim_offsets", "use_regex"}) object.Find(key);
    byte_level_ = true;
    steps_.emplace_back([](std::string_view token, bool) {
      return BytesOfToken(token).value_or(std::string(token));
    });
  } else if (type == "ByteFallback") {
    steps_.emplace_back(ByteOrToken);
  } else if (type == "Fuse") {
    fused_ = true;
  } else if (type == "Metaspace") {
    object.Find("str_rep");
    object.Find("split");
    const Metaspace rules = ReadMetaspaceKeys(object);
    const bool drops = rules.prefix != PrefixUse::kNever;
    const std::string space = rules.replacement;
    steps_.emplace_back([drops, space](std::string_view token, bool first) {
      return Replaced(token, space, first && drops ? "" : " ");
    });
  } else {
    RefuseJson(where + ".type",
               "ByteLevel, ByteFallback, Metaspace, Replace, Fuse, Strip or Sequence; or a "
               "tokenizer.model beside the file, which is read instead",
               step["type"]);
  }
  object.Finish();
}

}  // namespace trimtab
