// RankRunner: a StepRunner on the ranks of a layout, threads of this process that wait for plans.
#pragma once

#include <memory>

#include "engine/infer/serving_config.h"
#include "engine/infer/step_plan.h"
#include "engine/infer/weight_source.h"

namespace trimtab {

class RankRunner final : public StepRunner {
 public:
  /// Starts the ranks and returns when all have their weights. `config` is resolved; `source` need
  /// not outlive the constructor. Throws what a rank throws: OutOfMemoryError, EnvironmentError,
  /// InputError, StorageError.
  RankRunner(const ServingConfig& config, const WeightSource& source);
  ~RankRunner() override;

  /// Throws what a rank throws; there is no engine any more then.
  std::vector<float> Run(const StepPlan& plan) override;
  int64_t vocab_size() const override { return vocab_size_; }
  /// Allocator peak of the fullest rank so far, in bytes.
  int64_t peak_mem_bytes() const;

 private:
  class Ranks;

  int64_t vocab_size_;
  std::unique_ptr<Ranks> ranks_;
};

}  // namespace trimtab
