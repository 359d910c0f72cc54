// DistributedExecutor: a ModelExecutor on the ranks of a layout, which wait for plans: threads of
// this process, or processes that a launcher started. Of these, the first of each replica has the
// runner, and the others follow.
#pragma once

#include <memory>
#include <vector>

#include "engine/comm/mpi/rank_socket.h"
#include "engine/infer/scheduler/step_plan.h"
#include "engine/infer/serving_config.h"
#include "engine/runtime/weights/weight_source.h"

namespace trimtab {

/// Whose threads or processes the ranks are.
enum class RankHome {
  kLaunch,   // the processes that a launcher started; without one, threads of this process
  kProcess,  // threads of this process alone
};

class DistributedExecutor final : public ModelExecutor {
 public:
  /// Starts the ranks and returns when all have their weights, those of other replicas too.
  /// `config` is resolved; it has replicas only where a launcher started them, and then this is the
  /// one that this process belongs to. `source` need not outlive the constructor. Not in a process
  /// that FollowPlans. Throws what a rank throws: OutOfMemoryError, EnvironmentError, InputError,
  /// StorageError; UsageError when a launcher started another number of processes.
  DistributedExecutor(const ServingConfig& config, const WeightSource& source,
                      RankHome home = RankHome::kLaunch);
  ~DistributedExecutor() override;

  /// Throws what a rank throws; there is no engine any more then.
  std::vector<float> Run(const StepPlan& plan) override;
  BlockContents ReadBlocks(std::span<const int32_t> blocks) override;
  void WriteBlocks(std::span<const int32_t> blocks, const BlockContents& contents) override;
  int64_t vocab_size() const override { return vocab_size_; }
  /// The connections between replicas that MeetReplicas made, once.
  std::vector<Socket> TakeLinks();
  /// Whether the ranks have ended because one has failed: of processes, that of any replica.
  bool failed() const;
  /// Throws what that was, if so.
  void ThrowIfFailed() const;
  /// The same where it must be, as soon as it is known.
  [[noreturn]] void ThrowFailure() const;
  int64_t peak_mem_bytes() const override;

 private:
  class Ranks;

  int64_t vocab_size_;
  std::unique_ptr<Ranks> ranks_;
};

/// What the processes do that a launcher started beside the first of each replica: carries out, on
/// this process's rank, the plans of that one's DistributedExecutor for the same `config`, until
/// that is no more. Throws as its constructor.
void FollowPlans(const ServingConfig& config, const WeightSource& source);

}  // namespace trimtab
