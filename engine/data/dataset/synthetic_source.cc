#include <utility>

#include "engine/base/error.h"
#include "engine/base/mix.h"
#include "engine/data/dataset/token_source.h"

namespace trimtab {
namespace {

class SyntheticSource : public TokenSource {
 public:
  SyntheticSource(int64_t vocab_size, uint64_t seed, std::vector<DocumentLength> lengths)
      : vocab_size_(vocab_size), seed_(seed), lengths_(std::move(lengths)) {}

  void Sample(int64_t index, std::span<int32_t> tokens) const override {
    uint64_t state = MixBits(seed_ ^ MixBits(static_cast<uint64_t>(index)));
    for (int32_t& token : tokens) {
      state = MixBits(state);
      // The high half of a 32 x 32 bit product spreads the ids evenly without a division.
      token = static_cast<int32_t>(((state >> 32) * static_cast<uint64_t>(vocab_size_)) >> 32);
    }
  }

  void DocumentBegins(int64_t index, int64_t length, std::vector<int64_t>& begins) const override {
    if (lengths_.empty()) return;
    uint64_t state = MixBits(~seed_ ^ MixBits(static_cast<uint64_t>(index)));
    // A sample begins anywhere in a document: in a long one more likely than in a short one.
    const int64_t cut = Draw(/*by_tokens=*/true, state);
    int64_t begin = cut - static_cast<int64_t>(Uniform(state) * static_cast<double>(cut));
    for (; begin <= length; begin += Draw(/*by_tokens=*/false, state)) begins.push_back(begin);
  }

  int64_t vocab_size() const override { return vocab_size_; }

 private:
  /// Returns the next of pseudo-random numbers, uniform over [0, 1).
  static double Uniform(uint64_t& state) {
    state = MixBits(state);
    return static_cast<double>(state >> 11) * 0x1p-53;
  }
  /// Returns the length of a document, by how many documents have it or by how many tokens do.
  int64_t Draw(bool by_tokens, uint64_t& state) const {
    const auto share = [by_tokens](const DocumentLength& each) {
      return by_tokens ? each.weight * static_cast<double>(each.tokens) : each.weight;
    };
    double sum = 0;
    for (const DocumentLength& each : lengths_) sum += share(each);
    double left = Uniform(state) * sum;
    for (const DocumentLength& each : lengths_) {
      left -= share(each);
      if (left < 0) return each.tokens;
    }
    return lengths_.back().tokens;
  }

  int64_t vocab_size_;
  uint64_t seed_;
  std::vector<DocumentLength> lengths_;
};

}  // namespace

std::unique_ptr<TokenSource> MakeSyntheticSource(int64_t vocab_size, uint64_t seed,
                                                 std::vector<DocumentLength> lengths) {
  TRIMTAB_ASSERT(vocab_size > 0 && vocab_size <= INT32_MAX, "vocab_size {}", vocab_size);
  return std::make_unique<SyntheticSource>(vocab_size, seed, std::move(lengths));
}

}  // namespace trimtab
