// Reads the samples of a run ahead of its steps, on a thread of its own.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include "engine/base/mutex.h"
#include "engine/data/dataset/token_source.h"

namespace trimtab {

// Micro batches whose samples a rank reads before they are due.
inline constexpr int64_t kMicroBatchesAhead = 2;

/// Reads samples of another source ahead. Announced samples (Expect) are read before they are asked
/// for, as long as they are asked for in the announced order; other samples are read when they are
/// asked for. Asking for a sample drops the ones announced before it. Samples do not depend on it.
class SamplePrefetcher final : public TokenSource {
 public:
  /// Samples of `tokens` ids; at most `ahead` of them are kept. `source` must outlive this.
  SamplePrefetcher(const TokenSource& source, int64_t tokens, int64_t ahead);
  ~SamplePrefetcher() override;
  SamplePrefetcher(const SamplePrefetcher&) = delete;
  SamplePrefetcher& operator=(const SamplePrefetcher&) = delete;

  /// Announces samples [first, first + count), behind those announced before.
  void Expect(int64_t first, int64_t count);

  /// Throws what reading the sample threw.
  void Sample(int64_t index, std::span<int32_t> tokens) const override;
  void DocumentBegins(int64_t index, int64_t length, std::vector<int64_t>& begins) const override {
    source_.DocumentBegins(index, length, begins);
  }
  int64_t vocab_size() const override { return source_.vocab_size(); }

 private:
  struct Range {
    int64_t begin = 0;
    int64_t end = 0;
  };
  struct Ready {
    int64_t index = 0;
    std::vector<int32_t> tokens;
    std::exception_ptr error;
  };

  /// Reads announced samples on the thread until this is destroyed.
  void ReadAhead();
  /// Takes the sample out of those that are ready, with all before it; waits where it is the next
  /// to be read. Empty where it is neither; where it was announced, the thread goes on behind it.
  std::optional<Ready> Take(int64_t index) const;
  /// Drops what was announced up to `index`, if that was announced and is not read yet.
  void SkipTo(int64_t index) const TRIMTAB_REQUIRES(mutex_);

  const TokenSource& source_;
  const int64_t tokens_;
  const int64_t ahead_;
  mutable Mutex mutex_;
  mutable std::condition_variable changed_;
  // Not read yet, nor being read.
  mutable std::deque<Range> expected_ TRIMTAB_GUARDED_BY(mutex_);
  std::optional<int64_t> reading_ TRIMTAB_GUARDED_BY(mutex_);   // the sample that is being read
  mutable bool skips_read_ TRIMTAB_GUARDED_BY(mutex_) = false;  // it is not wanted any more
  // In the order in which they were announced.
  mutable std::deque<Ready> ready_ TRIMTAB_GUARDED_BY(mutex_);
  bool ends_ TRIMTAB_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace trimtab
