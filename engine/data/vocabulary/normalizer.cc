#include "engine/data/vocabulary/normalizer.h"

#include <utf8proc.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "engine/data/vocabulary/characters.h"
#include "engine/data/vocabulary/hugging_face_json.h"
#include "engine/data/vocabulary/normal_form.h"

namespace trimtab {
namespace {

using nlohmann::json;

std::string Strip(std::string_view text, bool left, bool right) {
  if (left) text.remove_prefix(LeadingSpace(text));
  if (right) text.remove_suffix(TrailingSpace(text));
  return std::string(text);
}

/// Appends what `change` makes of each character of `text`; bytes that are not UTF-8 stay.
template <typename Change>
std::string ByCharacter(std::string_view text, const Change& change) {
  std::string result;
  for (size_t at = 0; at < text.size();) {
    const Character character = CharacterAt(text, at);
    const std::string_view bytes = text.substr(at, character.bytes);
    if (character.code < 0) {
      result += bytes;
    } else {
      change(character.code, bytes, result);
    }
    at += character.bytes;
  }
  return result;
}

std::string Lowercase(std::string_view text) {
  return ByCharacter(text, [](int32_t code, std::string_view, std::string& result) {
    if (code == 0x130) {  // the only one whose lower case is two characters
      result += "i\u0307";
      return;
    }
    utf8proc_uint8_t bytes[4];
    const auto size = utf8proc_encode_char(utf8proc_tolower(code), bytes);
    result.append(reinterpret_cast<const char*>(bytes), static_cast<size_t>(size));
  });
}

std::string WithoutMarks(std::string_view text) {
  return ByCharacter(text, [](int32_t code, std::string_view bytes, std::string& result) {
    if (!IsMark(code)) result += bytes;
  });
}

}  // namespace

Normalizer::Normalizer(const json& normalizer, const std::string& where) {
  if (!normalizer.is_null()) Read(normalizer, where);
}

std::string Normalizer::Apply(std::string_view text) const {
  std::string result(text);
  for (const auto& step : steps_) result = step(result);
  return result;
}

void Normalizer::ReadReplace(const json& step, const std::string& where) {
  StrictObject object(step, where);
  object.Find("type");
  std::string content;
  object.Text("content", content, Need::kRequired);
  const auto pattern = std::make_shared<Pattern>(
      ReadPattern(*object.Find("pattern", Need::kRequired), object.Where("pattern")));
  object.Finish();
  steps_.emplace_back([pattern, content](std::string_view text) {
    std::string result;
    pattern->Split(text, [&](std::string_view part, bool matches) {
      result += matches ? std::string_view(content) : part;
    });
    return result;
  });
}

void Normalizer::Read(const json& step, const std::string& where) {
  const std::string type = TypeOf(step, where);
  if (type == "Sequence") {
    ForEachOf(step, where, "normalizers",
              [this](const json& each, const std::string& here) { Read(each, here); });
    return;
  }
  if (byte_level_) RefuseJson(where, "nothing behind 'ByteLevel'", step);
  if (type == "Replace") return ReadReplace(step, where);
  StrictObject object(step, where);
  object.Find("type");
  if (const std::optional<NormalForm> form = NormalFormOf(type)) {
    steps_.emplace_back([form](std::string_view text) { return Normalize(text, *form); });
  } else if (type == "Prepend") {
    std::string prefix;
    object.Text("prepend", prefix, Need::kRequired);
    steps_.emplace_back([prefix](std::string_view text) {
      return text.empty() ? std::string() : prefix + std::string(text);
    });
  } else if (type == "Strip") {
    bool left = true;
    bool right = true;
    object.Boolean("strip_left", left);
    object.Boolean("strip_right", right);
    steps_.emplace_back([left, right](std::string_view text) { return Strip(text, left, right); });
  } else if (type == "Lowercase") {
    steps_.emplace_back(Lowercase);
  } else if (type == "StripAccents") {
    steps_.emplace_back(WithoutMarks);
  } else if (type == "ByteLevel") {
    byte_level_ = true;
  } else {
    RefuseJson(where + ".type",
               "NFC, NFD, NFKC, NFKD, Prepend, Replace, Strip, StripAccents, Lowercase, ByteLevel "
               "or Sequence; or a tokenizer.model beside the file, which is read instead",
               step["type"]);
  }
  object.Finish();
}

}  // namespace trimtab
