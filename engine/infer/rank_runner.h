// RankRunner: a StepRunner on the ranks of a layout, which wait for plans: threads of this process,
// or processes that a launcher started, of which the first has the runner.
#pragma once

#include <memory>

#include "engine/infer/serving_config.h"
#include "engine/infer/step_plan.h"
#include "engine/infer/weight_source.h"

namespace trimtab {

/// Whose threads or processes the ranks are.
enum class RankHome {
  kLaunch,   // the processes that a launcher started; without one, threads of this process
  kProcess,  // threads of this process alone
};

class RankRunner final : public StepRunner {
 public:
  /// Starts the ranks and returns when all have their weights. `config` is resolved; `source` need
  /// not outlive the constructor. Not in a process that FollowPlans. Throws what a rank throws:
  /// OutOfMemoryError, EnvironmentError, InputError, StorageError; UsageError when a launcher
  /// started another number of processes.
  RankRunner(const ServingConfig& config, const WeightSource& source,
             RankHome home = RankHome::kLaunch);
  ~RankRunner() override;

  /// Throws what a rank throws; there is no engine any more then.
  std::vector<float> Run(const StepPlan& plan) override;
  /// Rank by rank. Both are RankRunners whose ranks are threads of this process, on cpu.
  void CopyBlocks(StepRunner& from, std::span<const BlockMove> moves) override;
  int64_t vocab_size() const override { return vocab_size_; }
  /// Allocator peak of the fullest rank so far, in bytes.
  int64_t peak_mem_bytes() const;

 private:
  class Ranks;

  int64_t vocab_size_;
  std::unique_ptr<Ranks> ranks_;
};

/// What the processes do that a launcher started beside the first: carries out, on this process's
/// rank, the plans of the first one's RankRunner for the same `config`, until that is no more.
/// Throws as its constructor.
void FollowPlans(const ServingConfig& config, const WeightSource& source);

}  // namespace trimtab
