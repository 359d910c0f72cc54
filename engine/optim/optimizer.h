// AdamW over the flat parameter buffer, whole or sharded over data parallel (zero 1), with
// global-norm gradient clipping.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/comm/parallel_context.h"
#include "engine/config/run_config.h"
#include "engine/layers/parameter.h"

namespace trimtab {

class Optimizer {
 public:
  /// Allocates both moments, zeroed: for the whole buffer, or with zero 1 for the rank's shard.
  Optimizer(const OptimizerConfig& config, const ParallelContext& parallel, ParameterStore& store);

  /// Elements [begin, end) of the flat buffer whose weights this rank updates.
  int64_t shard_begin() const { return shard_begin_; }
  int64_t shard_end() const { return shard_begin_ + m_.numel(); }
  Tensor& m() { return m_; }  // [shard_end - shard_begin]
  Tensor& v() { return v_; }

  /// One update with reduced gradients; `step` counts from 0. With zero 1 the updated shards are
  /// gathered afterwards. Returns the global gradient norm before clipping.
  double Step(double learning_rate, int64_t step);

 private:
  /// A run of neighbouring parameters that take the same weight decay, cut to the shard.
  struct Run {
    int64_t begin = 0;
    int64_t end = 0;
    bool decay = false;
  };

  double GradientNorm();
  double SumSquaresWithin(int64_t begin, int64_t end);

  OptimizerConfig config_;
  const ParallelContext& parallel_;
  ParameterStore& store_;
  bool sharded_ = false;
  int64_t shard_begin_ = 0;
  std::vector<Run> runs_;
  Tensor m_;
  Tensor v_;
};

}  // namespace trimtab
