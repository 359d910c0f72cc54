// Replicas: equal engines behind one, each with a share of the requests, a cache and a thread of
// its own.
#pragma once

#include <condition_variable>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "engine/infer/engine.h"

namespace trimtab {

/// A request goes to the replica that has the fewest, the first of several, and stays there. Every
/// replica takes step after step as long as it has work, whatever the others do: a long prompt
/// holds up nobody but those who share a replica with it.
class Replicas final : public Engine {
 public:
  /// At least one, of equal limits and vocabulary.
  explicit Replicas(std::vector<std::unique_ptr<Engine>> engines);
  /// Waits for the steps that are on their way.
  ~Replicas() override;

  std::variant<RequestId, Refusal> AddRequest(GenerationRequest request) override;
  /// What the replicas have brought since it was asked last. Waits a moment for something, and
  /// returns nothing if there is none by then, so that the caller can add requests.
  /// Throws what a replica throws; there is no engine any more then.
  std::vector<RequestUpdate> Step() override;
  bool Abort(RequestId id) override;
  /// Whether any request is not answered whole.
  bool HasWork() const override { return !replica_of_.empty(); }
  /// Sums over the replicas; of steps, those of all. What a replica is at shows when it is done.
  EngineMetrics metrics() const override;
  /// Of one replica, but for how many sequences and requests all take.
  const EngineLimits& limits() const override { return limits_; }
  int64_t vocab_size() const override { return vocab_size_; }

 private:
  struct Replica;
  /// What the replica's thread does.
  void Run(Replica& replica);
  /// Hands the replica's engine what was asked of it. The mutex is held.
  void Deliver(Replica& replica) const;
  /// All that the replicas have brought; of each request one update. The mutex is held.
  std::map<RequestId, RequestUpdate> Collect();

  EngineLimits limits_;
  int64_t vocab_size_;
  RequestId last_id_ = 0;
  std::map<RequestId, Replica*> replica_of_;  // of requests that are not answered whole

  mutable std::mutex mutex_;         // of all that follows, and of the engines between their steps
  std::condition_variable arrived_;  // updates, or a failure
  std::exception_ptr failure_;       // of a replica
  bool leaving_ = false;
  int64_t refused_ = 0;
  std::vector<std::unique_ptr<Replica>> replicas_;
};

}  // namespace trimtab
