// WeightGatherer: with sharded weights (stage 3, fully sharded data parallel: Zhao et al.,
// arXiv:2304.11277), brings a unit's weights together from all ranks for as long as they are used.
#pragma once

#include <cstddef>
#include <vector>

#include "engine/layers/fp8_state.h"
#include "engine/parallel/parameter_shards.h"

namespace trimtab {

class WeightGatherer {
 public:
  /// `fp8` is nullptr unless the precision is fp8. All must outlive this.
  WeightGatherer(const ParallelContext& parallel, ParameterShards& shards, Fp8State* fp8);

  /// Begins to gather the weights of the unit, unless they are there or on their way.
  void Prefetch(size_t unit);
  /// Makes them ready to use: waits for them, or gathers them now.
  void Acquire(size_t unit);
  /// Frees them, if they are there.
  void Release(size_t unit);
  void ReleaseAll();

 private:
  struct Unit {
    Tensor weights;  // defined once asked for
    CommHandle gather;
    bool ready = false;
  };

  const ParallelContext& parallel_;
  ParameterShards& shards_;
  Fp8State* fp8_;
  std::vector<Unit> units_;
};

}  // namespace trimtab
