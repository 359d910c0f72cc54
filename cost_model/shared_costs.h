// SharedCosts: what was recorded of a model, for all the threads that ask about its layouts.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>

#include "cost_model/chunk_costs.h"
#include "cost_model/cluster.h"
#include "cost_model/shared_memo.h"

namespace trimtab {

/// Thread-safe, but for SetPrices.
class SharedCosts {
 public:
  /// `remembered`: of its own sequence length.
  SharedCosts(const Cluster& cluster, Remembered remembered)
      : cluster_(cluster), whole_(cluster, remembered) {}

  /// Of the model's own sequence length.
  ChunkCosts& whole() { return whole_; }
  /// Of any length, also that one: spans alone, as bounds ask for them.
  ChunkCosts& SpansAt(int64_t sequence_length) {
    const std::lock_guard lock(mutex_);
    return spans_.try_emplace(sequence_length, cluster_, Remembered::kSpans).first->second;
  }
  /// Bytes that a rank holds between steps.
  SharedMemo<int64_t>& held() { return held_; }

  /// As ChunkCosts::ForgetIfMany, of costs: spans take little memory.
  void ForgetIfMany() { whole_.ForgetIfMany(); }
  /// As ChunkCosts::SetPrices. What SpansAt returned is gone.
  void SetPrices(const Cluster& cluster) {
    cluster_ = cluster;
    whole_.SetPrices(cluster);
    spans_.clear();
  }

 private:
  Cluster cluster_;
  ChunkCosts whole_;
  SharedMemo<int64_t> held_;
  std::mutex mutex_;
  std::map<int64_t, ChunkCosts> spans_;
};

}  // namespace trimtab
