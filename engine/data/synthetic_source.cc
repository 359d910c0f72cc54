#include "engine/base/error.h"
#include "engine/base/mix.h"
#include "engine/data/token_source.h"

namespace trimtab {
namespace {

class SyntheticSource : public TokenSource {
 public:
  SyntheticSource(int64_t vocab_size, uint64_t seed) : vocab_size_(vocab_size), seed_(seed) {}

  void Sample(int64_t index, std::span<int32_t> tokens) const override {
    uint64_t state = MixBits(seed_ ^ MixBits(static_cast<uint64_t>(index)));
    for (int32_t& token : tokens) {
      state = MixBits(state);
      // The high half of a 32 x 32 bit product spreads the ids evenly without a division.
      token = static_cast<int32_t>(((state >> 32) * static_cast<uint64_t>(vocab_size_)) >> 32);
    }
  }

  int64_t vocab_size() const override { return vocab_size_; }

 private:
  int64_t vocab_size_;
  uint64_t seed_;
};

}  // namespace

std::unique_ptr<TokenSource> MakeSyntheticSource(int64_t vocab_size, uint64_t seed) {
  TRIMTAB_ASSERT(vocab_size > 0 && vocab_size <= INT32_MAX, "vocab_size {}", vocab_size);
  return std::make_unique<SyntheticSource>(vocab_size, seed);
}

}  // namespace trimtab
