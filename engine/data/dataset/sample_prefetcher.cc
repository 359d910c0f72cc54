#include "engine/data/dataset/sample_prefetcher.h"

#include <algorithm>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/signals_blocked.h"

namespace trimtab {

SamplePrefetcher::SamplePrefetcher(const TokenSource& source, int64_t tokens, int64_t ahead)
    : source_(source), tokens_(tokens), ahead_(ahead) {
  TRIMTAB_ASSERT(tokens > 0 && ahead > 0, "{} samples ahead, of {} tokens", ahead, tokens);
  const SignalsBlocked blocked;
  thread_ = std::thread([this] { ReadAhead(); });
}

SamplePrefetcher::~SamplePrefetcher() {
  {
    const MutexLock lock(mutex_);
    ends_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void SamplePrefetcher::Expect(int64_t first, int64_t count) {
  if (count <= 0) return;
  {
    const MutexLock lock(mutex_);
    expected_.push_back({first, first + count});
  }
  changed_.notify_all();
}

void SamplePrefetcher::ReadAhead() {
  MutexLock lock(mutex_);
  for (;;) {
    lock.Wait(changed_, [this]() TRIMTAB_REQUIRES(mutex_) {
      return ends_ || (!expected_.empty() && std::ssize(ready_) < ahead_);
    });
    if (ends_) return;
    Range& next = expected_.front();
    Ready read = {.index = next.begin++, .tokens = {}, .error = nullptr};
    if (next.begin == next.end) expected_.pop_front();
    reading_ = read.index;
    lock.Unlock();
    try {
      read.tokens.resize(static_cast<size_t>(tokens_));
      source_.Sample(read.index, read.tokens);
    } catch (...) {
      read.error = std::current_exception();
    }
    lock.Lock();
    reading_.reset();
    if (!std::exchange(skips_read_, false)) ready_.push_back(std::move(read));
    changed_.notify_all();
  }
}

std::optional<SamplePrefetcher::Ready> SamplePrefetcher::Take(int64_t index) const {
  MutexLock lock(mutex_);
  for (;;) {
    const auto found = std::ranges::find(ready_, index, &Ready::index);
    if (found != ready_.end()) {
      Ready taken = std::move(*found);
      ready_.erase(ready_.begin(), std::next(found));
      changed_.notify_all();
      return taken;
    }
    const bool is_next = reading_ && !skips_read_ ? *reading_ == index
                                                  : ready_.empty() && !expected_.empty() &&
                                                        expected_.front().begin == index;
    if (!is_next) {
      SkipTo(index);
      return std::nullopt;
    }
    lock.WaitOnce(changed_);
  }
}

void SamplePrefetcher::SkipTo(int64_t index) const {
  const auto range = std::ranges::find_if(
      expected_, [index](const Range& each) { return each.begin <= index && index < each.end; });
  if (range == expected_.end()) return;
  range->begin = index + 1;
  expected_.erase(expected_.begin(), range->begin == range->end ? std::next(range) : range);
  ready_.clear();
  skips_read_ = reading_.has_value();
  changed_.notify_all();
}

void SamplePrefetcher::Sample(int64_t index, std::span<int32_t> tokens) const {
  if (std::ssize(tokens) == tokens_) {
    if (const std::optional<Ready> ready = Take(index)) {
      if (ready->error) std::rethrow_exception(ready->error);
      std::ranges::copy(ready->tokens, tokens.begin());
      return;
    }
  }
  source_.Sample(index, tokens);
}

}  // namespace trimtab
