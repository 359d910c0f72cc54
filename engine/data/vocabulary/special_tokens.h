// SpecialTokens: where the names of tokens stand in a text.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace trimtab {

/// A list of names. They are found from the left, the longest of those that begin at one place.
class SpecialTokens {
 public:
  /// `name` must not be empty; a later one of the same name takes its place.
  void Add(std::string name, int32_t id);

  std::optional<int32_t> Find(std::string_view name) const;
  bool empty() const { return count_ == 0; }

  /// Calls `text` with each run of `input` that is none of the names, unless it is empty, and
  /// `token` with the id of each name, in order.
  void Split(std::string_view input, const std::function<void(std::string_view)>& text,
             const std::function<void(int32_t)>& token) const;

 private:
  struct Entry {
    std::string name;
    int32_t id = 0;
  };
  /// By first byte, longest first.
  std::array<std::vector<Entry>, 256> entries_;
  size_t count_ = 0;
};

}  // namespace trimtab
