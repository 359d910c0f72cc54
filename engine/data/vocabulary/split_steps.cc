#include "engine/data/vocabulary/split_steps.h"

#include <cctype>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "engine/data/vocabulary/hugging_face_json.h"

namespace trimtab {
namespace {

using nlohmann::json;

/// GPT-2's pattern, which `ByteLevel` stands for.
constexpr char kByteLevelPattern[] =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

/// Unicode's punctuation, and what ASCII has beside it.
constexpr char kPunctuation[] = R"([\p{P}$+<=>^`|~])";

std::string Escaped(std::string_view literal) {
  std::string escaped;
  for (const char c : literal) {
    if (c > 0 && std::isalnum(static_cast<unsigned char>(c)) == 0) escaped += '\\';
    escaped += c;
  }
  return escaped;
}

class StepReader {
 public:
  void Read(const json& step, const std::string& where) {
    const std::string type = TypeOf(step, where);
    if (type == "Sequence") {
      ForEachOf(step, where, "pretokenizers",
                [this](const json& each, const std::string& here) { Read(each, here); });
    } else if (type == "ByteLevel") {
      ReadByteLevel(step, where);
    } else if (type == "Split") {
      ReadSplit(step, where);
    } else if (type == "Digits") {
      ReadDigits(step, where);
    } else if (type == "Punctuation") {
      ReadPunctuation(step, where);
    } else {
      RefuseJson(where + ".type", "ByteLevel, Split, Digits, Punctuation or Sequence",
                 step["type"]);
    }
  }

  bool byte_level() const { return byte_level_; }
  std::vector<SplitStep> Take() { return std::move(steps_); }

 private:
  /// What stands behind `ByteLevel` cuts the characters that this makes of bytes.
  void Add(SplitStep step) {
    step.over_bytes = byte_level_;
    steps_.push_back(std::move(step));
  }

  void ReadByteLevel(const json& step, const std::string& where) {
    StrictObject object(step, where);
    object.Find("type");
    bool space_first = true;
    bool use_regex = true;
    bool trim_offsets = true;  // of offsets, which are not made here
    object.Boolean("add_prefix_space", space_first);
    object.Boolean("trim_offsets", trim_offsets);
    object.Boolean("use_regex", use_regex);
    object.Finish();
    if (byte_level_) RefuseJson(where, "one 'ByteLevel', not two", step);
    // Without the pattern, one that matches every part whole: the bytes that it leaves are kept.
    if (use_regex || space_first) {
      Add({.pattern = {use_regex ? kByteLevelPattern : R"([\s\S]+)", where},
           .space_first = space_first});
    }
    byte_level_ = true;
  }

  void ReadSplit(const json& step, const std::string& where) {
    StrictObject object(step, where);
    object.Find("type");
    const json* pattern = object.Find("pattern", Need::kRequired);
    std::string behavior;
    bool invert = false;
    const std::string behaviors[] = {"Isolated", "Removed"};
    object.Choice("behavior", behavior, behaviors, Need::kRequired);
    object.Boolean("invert", invert);
    object.Finish();
    StrictObject choice(*pattern, object.Where("pattern"));
    std::string regex;
    std::string literal;
    choice.Text("Regex", regex);
    choice.Text("String", literal);
    choice.Finish();
    if (regex.empty() == literal.empty()) {
      object.Refuse("pattern", "either a \"Regex\" or a \"String\"");
    }
    const bool removed = behavior == "Removed";
    Add({.pattern = {regex.empty() ? Escaped(literal) : regex,
                     choice.Where(regex.empty() ? "String" : "Regex")},
         .keep_matches = !removed || invert,
         .keep_gaps = !removed || !invert});
  }

  void ReadDigits(const json& step, const std::string& where) {
    StrictObject object(step, where);
    object.Find("type");
    bool individual = false;
    object.Boolean("individual_digits", individual);
    object.Finish();
    Add({.pattern = {individual ? R"(\p{N})" : R"(\p{N}+)", where}});
  }

  void ReadPunctuation(const json& step, const std::string& where) {
    StrictObject object(step, where);
    object.Find("type");
    std::string behavior = "Isolated";
    const std::string behaviors[] = {"Isolated", "Contiguous"};
    object.Choice("behavior", behavior, behaviors);
    object.Finish();
    Add({.pattern = {std::string(kPunctuation) + (behavior == "Contiguous" ? "+" : ""), where}});
  }

  std::vector<SplitStep> steps_;
  bool byte_level_ = false;  // has come
};

}  // namespace

std::vector<SplitStep> ReadSplitSteps(const json& pre_tokenizer, const std::string& where) {
  StepReader reader;
  reader.Read(pre_tokenizer, where);
  if (!reader.byte_level()) {
    RefuseJson(where,
               "one with a 'ByteLevel' (other vocabularies are read from SentencePiece's "
               "tokenizer.model)",
               pre_tokenizer);
  }
  return reader.Take();
}

}  // namespace trimtab
