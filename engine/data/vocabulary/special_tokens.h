// SpecialTokens: where the names of tokens stand in a text.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace trimtab {

/// What a name takes and needs beside it in a text.
struct NameRules {
  bool takes_space_before = false;  // white space before it is part of it (`lstrip`)
  bool takes_space_behind = false;  // and behind it (`rstrip`)
  bool whole_word = false;          // only between characters that are no part of a word

  bool operator==(const NameRules&) const = default;
};

/// Hashes texts and views of texts alike.
struct TextHash {
  using is_transparent = void;
  size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
};

/// A list of names. They are found from the left, the longest of those that begin at one place.
class SpecialTokens {
 public:
  /// `name` must not be empty; a later one of the same name takes its place.
  void Add(std::string name, int32_t id, NameRules rules = {});

  std::optional<int32_t> Find(std::string_view name) const;
  bool empty() const { return entries_.empty(); }

  /// Calls `text` with each run of `input` that is none of the names, unless it is empty, and
  /// `token` with the id of each name, in order.
  void Split(std::string_view input, const std::function<void(std::string_view)>& text,
             const std::function<void(int32_t)>& token) const;

 private:
  struct Entry {
    int32_t id = 0;
    NameRules rules;
  };
  using Entries = std::unordered_map<std::string, Entry, TextHash, std::equal_to<>>;

  /// The longest name that `rest` begins with; none: end().
  Entries::const_iterator LongestAt(std::string_view rest) const;

  Entries entries_;
  std::array<std::vector<size_t>, 256> sizes_;  // of the names by first byte, the longest first
};

}  // namespace trimtab
