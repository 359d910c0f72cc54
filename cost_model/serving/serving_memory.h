// The memory of an engine that serves: its own ranks on the meta device, with their weights and
// cache, through the largest step that the scheduler can plan. So what is planned fits to the byte.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <tuple>
#include <vector>

#include "engine/device/device.h"
#include "engine/infer/serving_config.h"

namespace trimtab {

/// Bytes of one rank.
struct ServingMemory {
  int64_t weights = 0;
  int64_t cache = 0;
  int64_t step = 0;   // of the largest step, beyond these
  int64_t draft = 0;  // all of a draft model's, where there is one

  int64_t total() const { return weights + cache + step + draft; }
};

/// One model in one layout, with weights and cache in one precision each, and its draft model where
/// it has one; limits and blocks vary. Every rank leaves room for the draft, which lies on one.
class ServingMemoryModel {
 public:
  /// Of `config` counts all but its limits and the blocks of its cache. It is resolved, on an
  /// executor of `kind` with so many threads, and the draft with `draft_threads`. Holds no memory
  /// of that size.
  ServingMemoryModel(const ServingConfig& config, DeviceKind kind, int threads, int draft_threads);
  ~ServingMemoryModel();

  /// The most blocks that fit into `limit_bytes` of every rank beside all else; may be 0.
  int64_t BlocksWithin(int64_t limit_bytes, const EngineLimits& limits) {
    return BlocksWithin(limit_bytes, limits, limits);
  }
  /// The same if the largest step were that of other limits.
  int64_t BlocksWithin(int64_t limit_bytes, const EngineLimits& limits, const EngineLimits& step);
  /// Of the fullest rank.
  ServingMemory Of(const EngineLimits& limits, int64_t blocks);
  /// Bytes of weights on the rank that has most, and of the draft's.
  int64_t weight_bytes() const;
  /// Bytes of a block on the rank that has most layers.
  int64_t block_bytes() const;

 private:
  struct Stage;
  int64_t StepBytes(Stage& stage, const EngineLimits& limits) const;
  /// All of the draft's; 0 without.
  int64_t DraftBytes(const EngineLimits& limits, const EngineLimits& step);

  int64_t block_size_;
  int64_t proposed_;                            // tokens, per sequence and step
  std::vector<std::unique_ptr<Stage>> stages_;  // those that differ
  std::unique_ptr<ServingMemoryModel> draft_;
};

}  // namespace trimtab
