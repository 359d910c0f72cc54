// PackedKey: small numbers in a few words, to look things up by.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "engine/base/error.h"
#include "engine/config/layout/parallel_config.h"

namespace trimtab {

/// Equal where the same numbers were put in the same order. A number too large for its field is a
/// programmer's fault, and so are more numbers than fit.
class PackedKey {
 public:
  // Inlined, all but the shifts is known to the compiler: a search makes millions of keys.
  [[gnu::always_inline]] PackedKey& Put(int64_t value, int bits) {
    TRIMTAB_ASSERT(value >= 0 && value < (int64_t{1} << bits), "{} does not fit {} bits", value,
                   bits);
    if (used_ + bits > kWordBits) {
      ++word_;
      used_ = 0;
    }
    TRIMTAB_ASSERT(word_ < words_.size(), "more numbers than a key has room for");
    words_[word_] = (words_[word_] << bits) | static_cast<uint64_t>(value);
    used_ += bits;
    return *this;
  }
  /// One of at most eight values.
  template <typename Enum>
  [[gnu::always_inline]] PackedKey& Put(Enum value) {
    return Put(static_cast<int64_t>(value), 3);
  }
  /// All of them: a new member does not compile until it is named here.
  [[gnu::always_inline]] PackedKey& Put(const Numerics& numerics) {
    const auto& [precision, master, moments, gradients] = numerics;
    return Put(precision).Put(master).Put(static_cast<int64_t>(moments), 4).Put(gradients);
  }
  bool operator==(const PackedKey& other) const { return words_ == other.words_; }

  struct Hash {
    size_t operator()(const PackedKey& key) const {
      uint64_t hash = 0;
      for (const uint64_t word : key.words_) {
        hash = (hash ^ word) * 0x9E3779B97F4A7C15ULL;
        hash ^= hash >> 32;
      }
      return hash;
    }
  };

 private:
  static constexpr int kWordBits = 62;

  std::array<uint64_t, 7> words_{};
  size_t word_ = 0;
  int used_ = 0;
};

/// A list as a number, one for each that was met; 0 stands for an empty one.
template <typename List>
int64_t NumberOf(const List& list, std::vector<List>& met) {
  if (list.size() == 0) return 0;
  auto found = std::find(met.begin(), met.end(), list);
  if (found == met.end()) found = met.insert(met.end(), list);
  return found - met.begin() + 1;
}

}  // namespace trimtab
