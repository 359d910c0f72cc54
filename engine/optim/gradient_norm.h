// GradientNorm: the square of the global gradient norm, each gradient of the run counted once.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/comm/parallel_context.h"
#include "engine/parallel/parameter_shards.h"

namespace trimtab {

class GradientNorm {
 public:
  /// Both must outlive this.
  GradientNorm(const ParallelContext& parallel, ParameterShards& shards);

  /// Returns sums [2] that add up to the square, of gradients that are reduced. Every rank calls
  /// it.
  Tensor Squares();

 private:
  /// Gradients whose squares are summed at once, into one slot of unit_sums_.
  struct Part {
    OwnedPart part;
    int64_t slot = 0;
  };
  /// Gradients by the ranks that their squares are summed over: what is split over tp, what is the
  /// same on every tp rank, experts where there are any.
  enum Class : int64_t { kSplit, kReplicated, kExperts };

  bool has_experts() const { return sums_.numel() > kExperts; }
  void PlanParts();

  const ParallelContext& parallel_;
  ParameterShards& shards_;
  std::vector<Part> parts_;
  Tensor sums_;       // [2 or 3]: squares of gradients, by Class
  Tensor unit_sums_;  // [2 or 3 * units]: of each unit
};

}  // namespace trimtab
