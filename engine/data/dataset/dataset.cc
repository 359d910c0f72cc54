#include "engine/data/dataset/dataset.h"

#include "engine/base/error.h"
#include "engine/base/mix.h"
#include "engine/data/dataset/indexed_dataset.h"
#include "engine/data/dataset/permutation.h"

namespace trimtab {
namespace {

class DatasetSource : public TokenSource {
 public:
  DatasetSource(const std::string& prefix, int64_t sequence_length, uint64_t seed)
      : dataset_(prefix), sequence_length_(sequence_length), seed_(seed) {
    if (dataset_.tokens() < sequence_length + 1) {
      throw InputError(fmt::format("{}: {} tokens; expected at least {} (sequence length {} + 1)",
                                   dataset_.bin_path(), dataset_.tokens(), sequence_length + 1,
                                   sequence_length));
    }
    windows_ = (dataset_.tokens() - 1) / sequence_length;
    vocab_size_ = dataset_.info() ? dataset_.info()->vocab_size
                                  : static_cast<int64_t>(dataset_.MaxToken()) + 1;
  }

  void Sample(int64_t index, std::span<int32_t> tokens) const override {
    TRIMTAB_ASSERT(index >= 0 && static_cast<int64_t>(tokens.size()) == sequence_length_ + 1,
                   "sample {} of {} tokens from windows of {}", index, tokens.size(),
                   sequence_length_ + 1);
    const int64_t begin = WindowBegin(index);
    dataset_.Read(begin, tokens);
    for (size_t i = 0; i < tokens.size(); ++i) {
      if (tokens[i] >= 0 && tokens[i] < vocab_size_) continue;
      throw InputError(fmt::format("{}: token {} has id {}; expected 0 to {}", dataset_.bin_path(),
                                   begin + static_cast<int64_t>(i), tokens[i], vocab_size_ - 1));
    }
  }

  void DocumentBegins(int64_t index, int64_t length, std::vector<int64_t>& begins) const override {
    TRIMTAB_ASSERT(index >= 0 && length == sequence_length_,
                   "documents of sample {} of {} tokens from windows of {}", index, length,
                   sequence_length_);
    const int64_t first = WindowBegin(index);
    const size_t before = begins.size();
    dataset_.DocumentBegins(first + 1, first + length + 1, begins);
    for (size_t i = before; i < begins.size(); ++i) begins[i] -= first;
  }

  int64_t vocab_size() const override { return vocab_size_; }

 private:
  /// Returns the first token of the window that sample `index` is.
  int64_t WindowBegin(int64_t index) const {
    const int64_t epoch = index / windows_;
    const Permutation order(windows_, seed_ ^ MixBits(static_cast<uint64_t>(epoch)));
    return order(index % windows_) * sequence_length_;
  }

  IndexedDataset dataset_;
  int64_t sequence_length_;
  uint64_t seed_;
  int64_t windows_ = 0;
  int64_t vocab_size_ = 0;
};

}  // namespace

std::unique_ptr<TokenSource> OpenDataset(const std::string& prefix, int64_t sequence_length,
                                         uint64_t seed) {
  TRIMTAB_ASSERT(sequence_length >= 1, "sequence length {}", sequence_length);
  return std::make_unique<DatasetSource>(prefix, sequence_length, seed);
}

}  // namespace trimtab
