// UpdateGatherer: where ranks update shards of weights that each of them keeps whole (stages 1 and
// 2), brings the updated parts together: at once, or beside the forward pass of the next step, each
// unit's as it is used. With fp8 it has the copies made of what has changed.
#pragma once

#include <cstddef>
#include <vector>

#include "engine/layers/fp8_state.h"
#include "engine/parallel/parameter_shards.h"

namespace trimtab {

class UpdateGatherer {
 public:
  /// `fp8` is nullptr unless the precision is fp8. All must outlive this.
  UpdateGatherer(const ParallelContext& parallel, ParameterShards& shards, Fp8State* fp8);
  /// Waits for what is under way.
  ~UpdateGatherer();
  UpdateGatherer(const UpdateGatherer&) = delete;
  UpdateGatherer& operator=(const UpdateGatherer&) = delete;

  /// The ranks have updated their shards.
  void Gather();
  /// The weights were changed on every rank alike.
  void Changed();
  /// The unit's weights are about to be used.
  void Acquire(size_t unit);
  /// All weights are about to be used, by somebody who wants no fp8 copies.
  void Await();

 private:
  void AwaitBucket(size_t bucket);

  const ParallelContext& parallel_;
  ParameterShards& shards_;
  Fp8State* fp8_;
  bool beside_forward_;
  std::vector<CommHandle> gathers_;  // by bucket of trained units
  std::vector<bool> changed_;        // by unit: since its fp8 copies were made
};

}  // namespace trimtab
