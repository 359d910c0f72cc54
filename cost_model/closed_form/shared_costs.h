// SharedCosts: what was recorded of a model, for all the threads that ask about its layouts.
#pragma once

#include <cstdint>

#include "cost_model/closed_form/chunk_costs.h"
#include "cost_model/closed_form/shared_memo.h"
#include "cost_model/hardware/cluster.h"

namespace trimtab {

/// Thread-safe, but for SetPrices.
class SharedCosts {
 public:
  /// `remembered`: of whole costs.
  SharedCosts(const Cluster& cluster, Remembered remembered)
      : whole_(cluster, remembered), spans_(cluster, Remembered::kSpans) {}

  /// Whole costs.
  ChunkCosts& whole() { return whole_; }
  /// Spans alone, as bounds ask for them, at the prices there were first.
  ChunkCosts& spans() { return spans_; }
  /// Bytes that a rank holds between steps.
  SharedMemo<int64_t>& held() { return held_; }

  /// As ChunkCosts::ForgetIfMany, of costs: spans take little memory.
  void ForgetIfMany() { whole_.ForgetIfMany(); }
  /// As ChunkCosts::SetPrices.
  void SetPrices(const Cluster& cluster) { whole_.SetPrices(cluster); }

 private:
  ChunkCosts whole_;
  ChunkCosts spans_;
  SharedMemo<int64_t> held_;
};

}  // namespace trimtab
