#include "engine/data/dataset/permutation.h"

#include "engine/base/error.h"
#include "engine/base/mix.h"

namespace trimtab {

Permutation::Permutation(int64_t n, uint64_t key) : n_(static_cast<uint64_t>(n)), round_keys_() {
  TRIMTAB_ASSERT(n >= 1, "a permutation of {} elements", n);
  while (half_bits_ < 31 && (uint64_t{1} << (2 * half_bits_)) < n_) ++half_bits_;
  for (uint64_t& round_key : round_keys_) {
    key = MixBits(key);
    round_key = key;
  }
}

uint64_t Permutation::Encrypt(uint64_t value) const {
  const uint64_t mask = (uint64_t{1} << half_bits_) - 1;
  uint64_t left = value >> half_bits_;
  uint64_t right = value & mask;
  for (const uint64_t round_key : round_keys_) {
    const uint64_t next = left ^ (MixBits(right ^ round_key) & mask);
    left = right;
    right = next;
  }
  return (left << half_bits_) | right;
}

int64_t Permutation::operator()(int64_t i) const {
  uint64_t value = static_cast<uint64_t>(i);
  // A permutation's cycle leads back to i < n at the latest, so this ends.
  do {
    value = Encrypt(value);
  } while (value >= n_);
  return static_cast<int64_t>(value);
}

}  // namespace trimtab
