// Replicas: equal engines behind one, each with a share of the requests and a cache of its own.
#pragma once

#include <memory>
#include <vector>

#include "engine/infer/engine.h"

namespace trimtab {

/// A request goes to the replica that has the fewest, the first of several, and stays there. A step
/// is one of every replica that has work, at the same time.
class Replicas final : public Engine {
 public:
  /// At least one, of equal limits and vocabulary.
  explicit Replicas(std::vector<std::unique_ptr<Engine>> engines);

  std::variant<RequestId, Refusal> AddRequest(GenerationRequest request) override;
  /// Throws what a replica throws; there is no engine any more then.
  std::vector<RequestUpdate> Step() override;
  bool Abort(RequestId id) override;
  bool HasWork() const override;
  /// Sums over the replicas; of steps, those of all.
  EngineMetrics metrics() const override;
  /// Of one replica, but for how many sequences and requests all take.
  const EngineLimits& limits() const override { return limits_; }
  int64_t vocab_size() const override { return engines_.front()->vocab_size(); }

 private:
  // Request `id` of replica r is number id * replicas + r here.
  RequestId Outer(size_t replica, RequestId id) const;

  std::vector<std::unique_ptr<Engine>> engines_;
  EngineLimits limits_;
};

}  // namespace trimtab
