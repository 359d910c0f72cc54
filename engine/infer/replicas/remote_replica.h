// A replica whose ranks are other processes: the engine itself stands at the first of them, and
// this process asks it for steps.
#pragma once

#include <memory>
#include <set>
#include <string>

#include "engine/infer/executor/distributed_executor.h"
#include "engine/infer/replicas/replica_link.h"
#include "engine/infer/replicas/replica_messages.h"
#include "engine/infer/scheduler/handover.h"

namespace trimtab {

/// The engine of another process, as one of this process. A step is a message there and one back,
/// of requests and tokens, and of sequences that it hands over or takes over with what their blocks
/// hold.
class RemoteReplica final : public DisaggregatedEngine {
 public:
  /// Returns when the engine is ready. `own` are the ranks of this process, which hear of failures;
  /// limits and vocabulary are those of every replica. Throws what that engine has thrown.
  RemoteReplica(Socket socket, std::shared_ptr<DistributedExecutor> own,
                const EngineLimits& limits);

  std::variant<RequestId, Refusal> AddRequest(GenerationRequest request) override;
  std::vector<RequestUpdate> Step() override;
  bool Abort(RequestId id) override;
  bool HasWork() const override;
  EngineMetrics metrics() const override;
  const EngineLimits& limits() const override { return limits_; }
  int64_t vocab_size() const override { return own_->vocab_size(); }

  std::vector<TransferredSequence> TakePrefilled() override;
  void ReleaseBlocksOf(RequestId id) override;
  RequestId AddPrefilled(TransferredSequence sequence) override;
  std::vector<PinnedBlocks> TakeReleasable() override;

 private:
  /// What it says next.
  std::vector<RequestUpdate> AwaitReport();

  std::shared_ptr<DistributedExecutor> own_;
  ReplicaLink link_;  // ends first: the replica's ranks then do, as those of this process wait for
  EngineLimits limits_;
  RequestId last_id_ = 0;
  std::set<RequestId> open_;  // requests that are not answered whole, nor handed over
  ReplicaOrders orders_;      // that it does not have yet
  // After its last step, but for what was taken from here since.
  EngineMetrics metrics_;
  bool has_work_ = false;
  std::vector<TransferredSequence> ready_;
  std::vector<PinnedBlocks> copied_;
  int64_t aborted_ready_ = 0;  // requests that were to be handed over
};

/// The other end, on the first rank of a replica: has `engine` do what rank 0 asks, until that
/// lets go of the link.
void AnswerOrders(ReplicaLink& link, DisaggregatedEngine& engine);

/// Tells rank 0 why there will be no more answers.
void TellFailure(ReplicaLink& link, const std::exception& failure);

}  // namespace trimtab
