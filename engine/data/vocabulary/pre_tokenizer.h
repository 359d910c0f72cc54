// How a tokenizer.json cuts a text into words: its `pre_tokenizer`.
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/data/vocabulary/pattern.h"

namespace trimtab {

/// What becomes of the matches of a pattern.
enum class MatchUse {
  kIsolated,            // each is a part of its own
  kRemoved,             // left out
  kContiguous,          // those that follow each other are one part
  kMergedWithPrevious,  // joined to what stands before them
  kMergedWithNext,      // or behind
};

/// When a step puts something before a part that does not begin with it.
enum class PrefixUse { kNever, kFirst, kAlways };

/// One way to cut a text into smaller parts, each of which the next step cuts on.
struct SplitStep {
  std::optional<Pattern> pattern{};  // none: the part stays whole
  MatchUse use = MatchUse::kIsolated;
  bool invert = false;  // what lies between the matches is what matches
  std::string prefix{};
  PrefixUse prefix_use = PrefixUse::kNever;  // kFirst: before the first part of a text
  std::string space{};                       // what stands for a space, if anything
  bool over_bytes = false;  // the pattern sees a character for each byte (byte_alphabet.h)
};

class PreTokenizer {
 public:
  /// Leaves a text whole.
  PreTokenizer() = default;
  /// Reads a `pre_tokenizer`, null for none. With `byte_level` its patterns see a character for
  /// each byte from the first step on. Throws InputError with the JSON path of what is not
  /// understood.
  PreTokenizer(const nlohmann::json& pre_tokenizer, const std::string& where, bool byte_level);

  /// True if words are sequences of bytes, not of characters.
  bool byte_level() const { return byte_level_; }

  /// Calls `word` with each word of `text` in order. `first`: the text begins with it.
  void Split(std::string_view text, bool first,
             const std::function<void(std::string_view)>& word) const;

 private:
  void Add(SplitStep step);
  void Read(const nlohmann::json& step, const std::string& where);
  void ReadByteLevel(const nlohmann::json& step, const std::string& where);
  void ReadMetaspace(const nlohmann::json& step, const std::string& where);
  void ReadSplit(const nlohmann::json& step, const std::string& where);
  void ReadOfOneKey(const nlohmann::json& step, const std::string& type, const std::string& where);
  void SplitOn(size_t step, std::string_view part, bool first,
               const std::function<void(std::string_view)>& word) const;

  std::vector<SplitStep> steps_;
  bool byte_level_ = false;
};

}  // namespace trimtab
