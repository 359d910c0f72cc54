#include "engine/data/vocabulary/pre_tokenizer.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "engine/data/tokenizer/byte_alphabet.h"
#include "engine/data/vocabulary/hugging_face_json.h"
#include "engine/data/vocabulary/metaspace.h"

namespace trimtab {
namespace {

using nlohmann::json;

/// GPT-2's pattern, which `ByteLevel` stands for.
constexpr char kByteLevelPattern[] =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

/// Unicode's punctuation, and what ASCII has beside it.
constexpr char kPunctuation[] = R"([\p{P}$+<=>^`|~])";
/// Words, of letters, marks, digits, connectors and joiners, and what is neither these nor space.
constexpr char kWordsAndSigns[] = R"([\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\x{200c}\x{200d}]+|)"
                                  R"([^\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\x{200c}\x{200d}\s]+)";

struct NamedUse {
  const char* name;
  MatchUse use;
};
constexpr NamedUse kUses[] = {{"Isolated", MatchUse::kIsolated},
                              {"Removed", MatchUse::kRemoved},
                              {"Contiguous", MatchUse::kContiguous},
                              {"MergedWithPrevious", MatchUse::kMergedWithPrevious},
                              {"MergedWithNext", MatchUse::kMergedWithNext}};

MatchUse ReadUse(StrictObject& object, Need need) {
  std::vector<std::string> names;
  for (const NamedUse& each : kUses) names.emplace_back(each.name);
  std::string behavior = names.front();
  object.Choice("behavior", behavior, names, need);
  for (const NamedUse& each : kUses) {
    if (behavior == each.name) return each.use;
  }
  return MatchUse::kIsolated;
}

struct Part {
  size_t begin = 0;
  size_t end = 0;
};

/// Calls `part` with the parts into which the step cuts `text`.
template <typename Visit>
void Cut(const SplitStep& step, std::string_view text, const Visit& part) {
  if (!step.pattern) return part(text);
  const bool simple = step.use == MatchUse::kIsolated || step.use == MatchUse::kRemoved;
  std::vector<std::pair<Part, bool>> pieces;  // and whether each matches
  step.pattern->Split(text, [&](std::string_view piece, bool found) {
    const bool matches = found != step.invert;
    if (simple) {
      if (step.use == MatchUse::kIsolated || !matches) part(piece);
      return;
    }
    const auto begin = static_cast<size_t>(piece.data() - text.data());
    pieces.push_back({{begin, begin + piece.size()}, matches});
  });
  const bool forward = step.use == MatchUse::kMergedWithPrevious;
  std::vector<Part> parts;
  for (size_t i = 0; i < pieces.size(); ++i) {
    const auto& [place, matches] = pieces[i];
    const bool matched_before = i > 0 && pieces[i - 1].second;
    bool join = i > 0;
    if (step.use == MatchUse::kContiguous) {
      join = join && matches == matched_before;
    } else if (forward) {
      join = join && matches && !matched_before;
    } else {  // a match goes to what follows, unless that is a match too
      join = join && matched_before && !matches;
    }
    if (join) {
      parts.back().end = place.end;
    } else {
      parts.push_back(place);
    }
  }
  for (const Part& each : parts) part(text.substr(each.begin, each.end - each.begin));
}

}  // namespace

PreTokenizer::PreTokenizer(const json& pre_tokenizer, const std::string& where, bool byte_level)
    : byte_level_(byte_level) {
  if (!pre_tokenizer.is_null()) Read(pre_tokenizer, where);
}

/// What stands behind `ByteLevel` cuts the characters that this makes of bytes.
void PreTokenizer::Add(SplitStep step) {
  step.over_bytes = byte_level_;
  steps_.push_back(std::move(step));
}

void PreTokenizer::Read(const json& step, const std::string& where) {
  const std::string type = TypeOf(step, where);
  if (type == "Sequence") {
    ForEachOf(step, where, "pretokenizers",
              [this](const json& each, const std::string& here) { Read(each, here); });
  } else if (type == "ByteLevel") {
    ReadByteLevel(step, where);
  } else if (type == "Split") {
    ReadSplit(step, where);
  } else if (type == "Metaspace") {
    ReadMetaspace(step, where);
  } else {
    ReadOfOneKey(step, type, where);
  }
}

void PreTokenizer::ReadByteLevel(const json& step, const std::string& where) {
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
  if (use_regex || space_first) {
    SplitStep split;
    if (use_regex) split.pattern.emplace(kByteLevelPattern, where);
    split.prefix = " ";
    split.prefix_use = space_first ? PrefixUse::kAlways : PrefixUse::kNever;
    Add(std::move(split));
  }
  byte_level_ = true;
}

void PreTokenizer::ReadMetaspace(const json& step, const std::string& where) {
  StrictObject object(step, where);
  object.Find("type");
  object.Find("str_rep");  // the replacement again, in older files
  const Metaspace rules = ReadMetaspaceKeys(object);
  bool split = true;
  object.Boolean("split", split);
  object.Finish();
  SplitStep spaces;
  spaces.space = rules.replacement;
  spaces.prefix = rules.replacement;
  spaces.prefix_use = rules.prefix;
  if (split) {
    spaces.pattern.emplace(PatternOfText(rules.replacement), where);
    spaces.use = MatchUse::kMergedWithNext;
  }
  Add(std::move(spaces));
}

void PreTokenizer::ReadSplit(const json& step, const std::string& where) {
  StrictObject object(step, where);
  object.Find("type");
  const json* pattern = object.Find("pattern", Need::kRequired);
  SplitStep split;
  split.use = ReadUse(object, Need::kRequired);
  object.Boolean("invert", split.invert);
  object.Finish();
  split.pattern.emplace(ReadPattern(*pattern, object.Where("pattern")));
  Add(std::move(split));
}

void PreTokenizer::ReadOfOneKey(const json& step, const std::string& type,
                                const std::string& where) {
  StrictObject object(step, where);
  object.Find("type");
  SplitStep split;
  std::string expression;
  if (type == "Digits") {
    bool individual = false;
    object.Boolean("individual_digits", individual);
    expression = individual ? R"(\p{N})" : R"(\p{N}+)";
  } else if (type == "Punctuation") {
    expression = kPunctuation;
    split.use = ReadUse(object, Need::kOptional);
  } else if (type == "Whitespace") {
    expression = kWordsAndSigns;
    split.use = MatchUse::kRemoved;
    split.invert = true;
  } else if (type == "WhitespaceSplit") {
    expression = R"(\s)";
    split.use = MatchUse::kRemoved;
  } else if (type == "CharDelimiterSplit") {
    std::string delimiter;
    object.Text("delimiter", delimiter, Need::kRequired);
    if (delimiter.empty()) object.Refuse("delimiter", "a character");
    expression = PatternOfText(delimiter);
    split.use = MatchUse::kRemoved;
  } else {
    RefuseJson(where + ".type",
               "ByteLevel, Metaspace, Split, Digits, Punctuation, Whitespace, WhitespaceSplit, "
               "CharDelimiterSplit or Sequence; or a tokenizer.model beside the file, which is "
               "read instead",
               step["type"]);
  }
  object.Finish();
  split.pattern.emplace(expression, where);
  Add(std::move(split));
}

void PreTokenizer::Split(std::string_view text, bool first,
                         const std::function<void(std::string_view)>& word) const {
  SplitOn(0, text, first, word);
}

void PreTokenizer::SplitOn(size_t step, std::string_view part, bool first,
                           const std::function<void(std::string_view)>& word) const {
  if (part.empty()) return;
  if (step == steps_.size()) return word(part);
  const SplitStep& split = steps_[step];
  std::string changed;  // what the step cuts, where that is not the part itself
  if (split.over_bytes) {
    for (const char c : part) changed += ByteCharacter(static_cast<uint8_t>(c));
    part = changed;
  } else if (!split.space.empty()) {
    for (const char c : part) {
      if (c == ' ') {
        changed += split.space;
      } else {
        changed += c;
      }
    }
    part = changed;
  }
  std::string with_prefix;
  const bool prefixed =
      split.prefix_use == PrefixUse::kAlways || (split.prefix_use == PrefixUse::kFirst && first);
  if (prefixed && !part.starts_with(split.prefix)) {
    with_prefix.append(split.prefix).append(part);
    part = with_prefix;
  }
  Cut(split, part, [&](std::string_view piece) {
    const bool leads = first && piece.data() == part.data();
    if (split.over_bytes) {
      SplitOn(step + 1, *BytesOfToken(piece), leads, word);
    } else {
      SplitOn(step + 1, piece, leads, word);
    }
  });
}

}  // namespace trimtab
