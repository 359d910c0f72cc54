// Replicas: equal engines behind one, each with a share of the requests, a cache and a thread of
// its own. Some of them may compute prompts alone, for the others to go on with.
#pragma once

#include <condition_variable>
#include <exception>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "engine/base/mutex.h"
#include "engine/infer/scheduler/handover.h"

namespace trimtab {

/// A request goes to the replica that has the fewest, the first of several, and stays there. Every
/// replica takes step after step as long as it has work, whatever the others do: a long prompt
/// holds up nobody but those who share a replica with it. Where the first ones compute prompts
/// alone, requests go to these, and then in the same way to one of the others.
class Replicas final : public Engine {
 public:
  /// At least one, of equal limits and vocabulary. The first `prefill` hand over what they have
  /// computed; that must leave some.
  explicit Replicas(std::vector<std::unique_ptr<DisaggregatedEngine>> engines, int64_t prefill = 0);
  /// Waits for the steps that are on their way.
  ~Replicas() override;

  std::variant<RequestId, Refusal> AddRequest(GenerationRequest request) override;
  /// What the replicas have brought since it was asked last. Waits a moment for something, and
  /// returns nothing if there is none by then, so that the caller can add requests.
  /// Throws what a replica throws; there is no engine any more then.
  std::vector<RequestUpdate> Step() override;
  bool Abort(RequestId id) override;
  /// Whether any request is not answered whole.
  bool HasWork() const override;
  /// Sums over the replicas; of steps, those of all. What a replica is at shows when it is done.
  EngineMetrics metrics() const override;
  /// Of one replica, but for how many sequences all work on that go on, tokens of a step of all,
  /// and requests that may wait for their prompts.
  const EngineLimits& limits() const override { return limits_; }
  int64_t vocab_size() const override { return vocab_size_; }

 private:
  struct Replica;
  /// What the replica's thread does.
  void Run(Replica& replica);
  /// Waits until the replica's engine has work. Returns false when there will be none.
  bool Prepare(Replica& replica) TRIMTAB_EXCLUDES(mutex_);
  /// Keeps what a step of the replica's engine has brought.
  void Take(Replica& replica, std::vector<RequestUpdate> updates) TRIMTAB_EXCLUDES(mutex_);
  /// Hands the replica's engine what was asked of it, and others what that has computed.
  void Deliver(Replica& replica) TRIMTAB_REQUIRES(mutex_);
  void DeliverAborted(Replica& replica) TRIMTAB_REQUIRES(mutex_);
  /// Sequences whose prompts are done go to who goes on with them.
  void HandOver(Replica& replica) TRIMTAB_REQUIRES(mutex_);
  /// Lets the engine that keeps them free blocks that nobody needs.
  void Return(const PinnedBlocks& held) TRIMTAB_REQUIRES(mutex_);
  static void Wake(Replica& replica);
  /// That has the fewest requests, the first of several.
  static Replica& Fewest(std::span<const std::unique_ptr<Replica>> of);
  /// All that the replicas have brought; of each request one update.
  std::map<RequestId, RequestUpdate> Collect() TRIMTAB_REQUIRES(mutex_);

  EngineLimits limits_;
  int64_t vocab_size_;

  // Also of what replicas have, and of the engines between their steps.
  mutable Mutex mutex_;
  std::condition_variable arrived_;                        // updates, or a failure
  std::exception_ptr failure_ TRIMTAB_GUARDED_BY(mutex_);  // of a replica
  bool leaving_ TRIMTAB_GUARDED_BY(mutex_) = false;
  RequestId last_id_ TRIMTAB_GUARDED_BY(mutex_) = 0;
  int64_t refused_ TRIMTAB_GUARDED_BY(mutex_) = 0;
  // The replica that has the request, which is not answered whole.
  std::map<RequestId, Replica*> replica_of_ TRIMTAB_GUARDED_BY(mutex_);
  std::vector<std::unique_ptr<Replica>> replicas_;
  std::span<const std::unique_ptr<Replica>> first_;   // those that requests go to first,
  std::span<const std::unique_ptr<Replica>> second_;  // and those that go on with them; or none
};

}  // namespace trimtab
