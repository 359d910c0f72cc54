// AdamW over what this rank updates of the flat order of parameters (all, or with sharding a part:
// engine/parallel), with global-norm gradient clipping. It owns what completes 16-bit weights to
// fp32: the master weights.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/comm/parallel_context.h"
#include "engine/config/run_config.h"
#include "engine/ops/adamw.h"
#include "engine/parallel/parameter_shards.h"

namespace trimtab {

/// What an update came to.
struct UpdateOutcome {
  double grad_norm = 0;  // global, before clipping, loss scale taken out
  bool applied = true;   // false: the norm is not finite, and nothing was changed
};

class Optimizer {
 public:
  /// Allocates master weights (beside 16-bit ones) and both moments, zeroed, for the elements that
  /// this rank updates.
  Optimizer(const OptimizerConfig& config, const ParallelContext& parallel,
            ParameterShards& shards);

  // Elements are those of the flat order, [begin, begin + values.size()), all of one unit.

  /// Sets weights and their masters, both as far as this rank keeps them.
  void WriteWeights(int64_t begin, std::span<const float> values);
  /// Their fp32 values. This rank must update them.
  void ReadWeights(int64_t begin, std::span<float> values) const;

  enum class Moment { kFirst, kSecond };
  /// Moments. This rank must update their elements. To write fp16 moments, whole blocks of
  /// kMomentBlock elements must be given, or the last ones of a parameter.
  void WriteMoments(Moment moment, int64_t begin, std::span<const float> values);
  void ReadMoments(Moment moment, int64_t begin, std::span<float> values) const;

  /// Sends what the coming update depends on to the device. `updates` counts those applied before.
  void Prepare(double learning_rate, int64_t updates, double loss_scale);
  /// One update with reduced gradients: norm, clipping, AdamW. Device work only.
  void Update();
  /// Waits for it.
  UpdateOutcome Outcome() const;

 private:
  /// Neighbouring parameters that take the same weight decay, as far as this rank updates them.
  struct Run {
    OwnedPart part;
    bool decay = false;
    int64_t first_block = 0;  // of those that fp16 moments are scaled by

    int64_t shard_end() const { return part.shard_begin + part.numel; }
    /// That of the element `at` of the shard.
    int64_t BlockOf(int64_t at) const {
      return first_block + (at - part.shard_begin) / kMomentBlock;
    }
    int64_t end_block() const { return BlockOf(shard_end() + kMomentBlock - 1); }
  };
  /// Gradients whose squares are summed at once, into one slot of unit_sums_.
  struct NormPart {
    OwnedPart part;
    int64_t slot = 0;
  };

  /// Gradients by the ranks that their squares are summed over: what is split over tp, what is the
  /// same on every tp rank, experts where there are any.
  enum NormClass : int64_t { kSplit, kReplicated, kExperts };

  bool has_master() const { return master_.defined(); }
  bool has_experts() const { return sums_.numel() > kExperts; }
  /// Elements of the flat order at which another run begins, so that no block of fp16 moments
  /// reaches into rows that other ranks hold too: their scales would differ, and what they update.
  std::vector<int64_t> BlockCuts() const;
  void PlanRuns();
  void PlanNorm();
  /// [2]: the squares of all gradients of the run add up to its sum.
  Tensor GradientSquares();
  /// The elements as a part of the shard, of which they must be.
  OwnedPart Owned(int64_t begin, size_t count) const;
  AdamWState StateOf(const Run& run);
  /// Of one run, from the element `at` of the shard on.
  void WriteScaled(Moment which, int64_t at, int64_t first_block, std::span<const float> values);
  Tensor& moment(Moment moment) { return moment == Moment::kFirst ? m_ : v_; }
  Tensor& moment_scale(Moment moment) { return moment == Moment::kFirst ? m_scale_ : v_scale_; }

  OptimizerConfig config_;
  const ParallelContext& parallel_;
  ParameterShards& shards_;
  std::vector<Run> runs_;
  std::vector<NormPart> norm_parts_;
  // Of the shard.
  Tensor master_;  // undefined with fp32 weights
  Tensor m_;
  Tensor v_;
  Tensor m_scale_;  // with fp16 moments
  Tensor v_scale_;
  Tensor unit_sums_;  // [2 or 3 * units]: squares of gradients, by NormClass
  Tensor sums_;       // [2 or 3]: the same of all units
  Tensor scalars_;    // [kUpdateScalarCount]
};

}  // namespace trimtab
