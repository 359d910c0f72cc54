// AdamW over the flat parameter buffer, whole or sharded over data parallel (zero 1), with
// global-norm gradient clipping. It owns what completes 16-bit weights to fp32: the master weights.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/comm/parallel_context.h"
#include "engine/config/run_config.h"
#include "engine/layers/parameter.h"
#include "engine/ops/adamw.h"

namespace trimtab {

/// What an update came to.
struct UpdateOutcome {
  double grad_norm = 0;  // global, before clipping, loss scale taken out
  bool applied = true;   // false: the norm is not finite, and nothing was changed
};

class Optimizer {
 public:
  /// Allocates master weights (beside 16-bit ones) and both moments, zeroed: for the whole buffer,
  /// or with zero 1 for the rank's shard.
  Optimizer(const OptimizerConfig& config, const ParallelContext& parallel, ParameterStore& store);

  /// Elements [begin, end) of the flat buffer whose weights this rank updates.
  int64_t shard_begin() const { return shard_begin_; }
  int64_t shard_end() const { return shard_begin_ + m_.numel(); }

  /// Whether masters, like moments, are this rank's shard only.
  bool sharded() const { return sharded_; }
  /// True where the fp32 values of the weights lie in the shard: there are master weights.
  bool has_master() const { return master_.defined(); }

  /// Sets weights [begin, begin + values.size()) of the flat buffer and, where the shard covers
  /// them, their masters.
  void WriteWeights(int64_t begin, std::span<const float> values);
  /// The fp32 values of the same; must lie in the shard when has_master().
  void ReadWeights(int64_t begin, std::span<float> values) const;

  enum class Moment { kFirst, kSecond };
  /// Moments of elements [begin, begin + values.size()) of the flat buffer, all in the shard. To
  /// write fp16 moments, whole blocks of kMomentBlock elements must be given, or the last ones.
  void WriteMoments(Moment moment, int64_t begin, std::span<const float> values);
  void ReadMoments(Moment moment, int64_t begin, std::span<float> values) const;

  /// Sends what the coming update depends on to the device. `updates` counts those applied before.
  void Prepare(double learning_rate, int64_t updates, double loss_scale);
  /// One update with reduced gradients: norm, clipping, AdamW; with zero 1 the updated shards are
  /// gathered afterwards. Device work only.
  void Update();
  /// Waits for it.
  UpdateOutcome Outcome() const;

 private:
  /// A run of neighbouring parameters that take the same weight decay, cut to the shard.
  struct Run {
    int64_t begin = 0;
    int64_t end = 0;
    bool decay = false;
  };

  void SumSquaresWithin(int64_t begin, int64_t end, int64_t slot);
  AdamWState StateOf(const Run& run);
  Tensor& moment(Moment moment) { return moment == Moment::kFirst ? m_ : v_; }
  Tensor& moment_scale(Moment moment) { return moment == Moment::kFirst ? m_scale_ : v_scale_; }

  OptimizerConfig config_;
  const ParallelContext& parallel_;
  ParameterStore& store_;
  bool sharded_ = false;
  int64_t shard_begin_ = 0;
  std::vector<Run> runs_;
  Tensor master_;  // undefined with fp32 weights
  Tensor m_;
  Tensor v_;
  Tensor m_scale_;  // with fp16 moments
  Tensor v_scale_;
  Tensor sums_;     // [2]: squares of tensor-parallel gradients, of replicated ones
  Tensor scalars_;  // [kUpdateScalarCount]
};

}  // namespace trimtab
