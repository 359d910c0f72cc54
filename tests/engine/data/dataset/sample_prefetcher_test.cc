#include "engine/data/dataset/sample_prefetcher.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <optional>
#include <set>

#include "engine/base/error.h"

namespace trimtab {
namespace {

constexpr int64_t kTokens = 5;
constexpr int64_t kAhead = 3;

/// Counts the reads of each sample. Sample 100 cannot be read.
class CountingSource final : public TokenSource {
 public:
  void Sample(int64_t index, std::span<int32_t> tokens) const override {
    std::unique_lock lock(mutex_);
    ++reads_[index];
    threads_.insert(std::this_thread::get_id());
    readers_[index] = std::this_thread::get_id();
    changed_.notify_all();
    changed_.wait(lock, [&] { return held_ != index; });
    if (index == 100) throw InputError("sample 100 is damaged");
    std::ranges::fill(tokens, static_cast<int32_t>(index));
  }
  void DocumentBegins(int64_t index, int64_t length, std::vector<int64_t>& begins) const override {
    begins.push_back(index % length);
  }
  int64_t vocab_size() const override { return 1000; }

  /// Returns once so many reads have begun.
  void AwaitReads(int64_t count) const {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return Count() >= count; });
  }
  /// From now on a read of the sample ends only after Release.
  void Hold(int64_t index) {
    const std::scoped_lock lock(mutex_);
    held_ = index;
  }
  void Release() {
    const std::scoped_lock lock(mutex_);
    held_.reset();
    changed_.notify_all();
  }
  /// Returns the thread of the last read of a sample.
  std::thread::id reader(int64_t index) const {
    const std::scoped_lock lock(mutex_);
    return readers_.at(index);
  }
  std::map<int64_t, int> reads() const {
    const std::scoped_lock lock(mutex_);
    return reads_;
  }
  std::set<std::thread::id> threads() const {
    const std::scoped_lock lock(mutex_);
    return threads_;
  }

 private:
  int64_t Count() const {
    int64_t count = 0;
    for (const auto& [index, reads] : reads_) count += reads;
    return count;
  }

  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  mutable std::map<int64_t, int> reads_;
  mutable std::set<std::thread::id> threads_;
  mutable std::map<int64_t, std::thread::id> readers_;
  std::optional<int64_t> held_;
};

int32_t Ask(const TokenSource& source, int64_t index) {
  std::vector<int32_t> tokens(kTokens, -1);
  source.Sample(index, tokens);
  EXPECT_EQ(tokens, std::vector<int32_t>(kTokens, tokens.front()));
  return tokens.front();
}

// Every wait below ends only if the thread reads without being asked.
TEST(SamplePrefetcher, ReadsAheadOnAThreadOfItsOwn) {
  const CountingSource source;
  SamplePrefetcher prefetcher(source, kTokens, kAhead);
  prefetcher.Expect(10, 4);
  prefetcher.Expect(40, 4);
  source.AwaitReads(kAhead);
  const int64_t order[] = {10, 11, 12, 13, 40, 41, 42, 43};
  for (int64_t i = 0; i < 8; ++i) {
    EXPECT_EQ(Ask(prefetcher, order[i]), order[i]);
    source.AwaitReads(std::min<int64_t>(8, i + 1 + kAhead));
  }
  std::map<int64_t, int> once;
  for (const int64_t index : order) once[index] = 1;
  EXPECT_EQ(source.reads(), once);
  EXPECT_FALSE(source.threads().contains(std::this_thread::get_id()));
}

TEST(SamplePrefetcher, SamplesThatWereNotAnnouncedAreReadAtOnce) {
  const CountingSource source;
  SamplePrefetcher prefetcher(source, kTokens, kAhead);
  EXPECT_EQ(Ask(prefetcher, 7), 7);
  prefetcher.Expect(10, 2);
  source.AwaitReads(3);
  EXPECT_EQ(Ask(prefetcher, 50), 50);
  EXPECT_EQ(Ask(prefetcher, 10), 10);
  EXPECT_EQ(Ask(prefetcher, 10), 10) << "again";
  EXPECT_EQ(Ask(prefetcher, 11), 11);
  EXPECT_EQ(source.reads(), (std::map<int64_t, int>{{7, 1}, {10, 2}, {11, 1}, {50, 1}}));
  std::vector<int32_t> fewer(2);
  prefetcher.Expect(60, 1);
  prefetcher.Sample(60, fewer);
  EXPECT_EQ(fewer, std::vector<int32_t>(2, 60));
}

TEST(SamplePrefetcher, PassesOverWhatIsNotAskedFor) {
  const CountingSource source;
  SamplePrefetcher prefetcher(source, kTokens, kAhead);
  prefetcher.Expect(0, 10);
  source.AwaitReads(kAhead);
  for (const int64_t index : {2, 3, 4, 5, 6, 7, 8, 9}) EXPECT_EQ(Ask(prefetcher, index), index);
  EXPECT_EQ(source.reads().size(), 10u);
}

// The thread is at sample 0 while the others are passed over.
TEST(SamplePrefetcher, GoesOnBehindASampleThatIsAskedForEarly) {
  CountingSource source;
  source.Hold(0);
  SamplePrefetcher prefetcher(source, kTokens, kAhead);
  prefetcher.Expect(0, 4);
  prefetcher.Expect(10, 5);
  source.AwaitReads(1);
  EXPECT_EQ(Ask(prefetcher, 11), 11);
  source.Release();
  for (const int64_t index : {12, 13, 14}) EXPECT_EQ(Ask(prefetcher, index), index);
  EXPECT_EQ(source.reads(), (std::map<int64_t, int>{{0, 1}, {11, 1}, {12, 1}, {13, 1}, {14, 1}}));
  EXPECT_EQ(source.reader(11), std::this_thread::get_id());
  for (const int64_t index : {0, 12, 13, 14}) {
    EXPECT_NE(source.reader(index), std::this_thread::get_id()) << index;
  }
  EXPECT_EQ(Ask(prefetcher, 10), 10) << "passed over";
}

TEST(SamplePrefetcher, AnErrorReachesTheCallerOfItsSample) {
  const CountingSource source;
  SamplePrefetcher prefetcher(source, kTokens, kAhead);
  prefetcher.Expect(99, 3);
  source.AwaitReads(3);
  EXPECT_EQ(Ask(prefetcher, 99), 99);
  EXPECT_THROW(Ask(prefetcher, 100), InputError);
  EXPECT_EQ(Ask(prefetcher, 101), 101);
}

TEST(SamplePrefetcher, DocumentsAreThoseOfItsSource) {
  const CountingSource source;
  SamplePrefetcher prefetcher(source, kTokens, kAhead);
  prefetcher.Expect(10, 4);
  std::vector<int64_t> begins;
  prefetcher.DocumentBegins(13, 8, begins);
  EXPECT_EQ(begins, std::vector<int64_t>{5});
}

TEST(SamplePrefetcher, EndsWithSamplesThatNobodyAskedFor) {
  const CountingSource source;
  SamplePrefetcher prefetcher(source, kTokens, kAhead);
  prefetcher.Expect(0, 1000);
  source.AwaitReads(1);
}

}  // namespace
}  // namespace trimtab
