// Speculation by n-gram look-up (Saxena, prompt-lookup-decoding, 2023): what followed the last
// tokens when they stood in the text before is proposed to follow again.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

namespace trimtab {

/// Index of the latest place of each n-gram of one growing text. Each look-up adds the n-grams that
/// are new since the previous one, so a text is indexed once, however often it is looked up.
class ContinuationIndex {
 public:
  /// Returns up to `most` tokens that followed the latest earlier place of the last tokens of
  /// `history`: of the last three, or where these occur nowhere else, the last two. `history`
  /// begins with the history of the look-up before.
  std::vector<int32_t> Find(std::span<const int32_t> history, int64_t most);

 private:
  template <size_t kLength>
  struct Places {
    using Gram = std::array<int32_t, kLength>;
    struct Hash {
      size_t operator()(const Gram& gram) const;
    };

    /// Adds the n-grams of `history` but the last, which stands nowhere earlier by itself.
    void Add(std::span<const int32_t> history);
    /// Returns what follows the place of the last n-gram; empty where it has none.
    std::span<const int32_t> Behind(std::span<const int32_t> history) const;

    std::unordered_map<Gram, int64_t, Hash> latest;  // place of the first token
    int64_t added = 0;
  };

  Places<3> triples_;
  Places<2> pairs_;
};

}  // namespace trimtab
