// A pseudo-random permutation of [0, n), computed element by element: nothing is stored.
#pragma once

#include <array>
#include <cstdint>

namespace trimtab {

/// A balanced Feistel network over the smallest even number of bits that holds n - 1, walked along
/// its cycle until the value falls below n (Black and Rogaway, "Ciphers with Arbitrary Finite
/// Domains", CT-RSA 2002, method 2). At most about four network calls per element on average.
class Permutation {
 public:
  /// `n` >= 1. The same n and key always give the same permutation.
  Permutation(int64_t n, uint64_t key);

  /// Where element `i` in [0, n) goes.
  int64_t operator()(int64_t i) const;

 private:
  static constexpr int kRounds = 6;

  uint64_t Encrypt(uint64_t value) const;

  uint64_t n_;
  int half_bits_ = 1;
  std::array<uint64_t, kRounds> round_keys_;
};

}  // namespace trimtab
