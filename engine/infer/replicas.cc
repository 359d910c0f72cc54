#include "engine/infer/replicas.h"

#include <algorithm>
#include <cstdlib>
#include <future>
#include <utility>

#include "engine/base/error.h"

namespace trimtab {

Replicas::Replicas(std::vector<std::unique_ptr<Engine>> engines) : engines_(std::move(engines)) {
  TRIMTAB_ASSERT(!engines_.empty(), "no replicas");
  limits_ = engines_.front()->limits();
  limits_.sequences *= std::ssize(engines_);
  limits_.tokens_per_step *= std::ssize(engines_);
  limits_.waiting *= std::ssize(engines_);
}

RequestId Replicas::Outer(size_t replica, RequestId id) const {
  return id * std::ssize(engines_) + static_cast<RequestId>(replica);
}

std::variant<RequestId, Refusal> Replicas::AddRequest(GenerationRequest request) {
  const auto load = [](const std::unique_ptr<Engine>& engine) {
    const EngineMetrics metrics = engine->metrics();
    return metrics.running + metrics.waiting;
  };
  const auto least = std::ranges::min_element(engines_, {}, load);
  auto taken = (*least)->AddRequest(std::move(request));
  if (auto* id = std::get_if<RequestId>(&taken)) {
    *id = Outer(static_cast<size_t>(least - engines_.begin()), *id);
  }
  return taken;
}

std::vector<RequestUpdate> Replicas::Step() {
  std::vector<std::pair<size_t, std::future<std::vector<RequestUpdate>>>> steps;
  for (size_t i = 0; i < engines_.size(); ++i) {
    if (!engines_[i]->HasWork()) continue;
    steps.emplace_back(
        i, std::async(std::launch::async, [engine = engines_[i].get()] { return engine->Step(); }));
  }
  std::vector<RequestUpdate> all;
  for (auto& [replica, step] : steps) {
    for (RequestUpdate& update : step.get()) {
      update.id = Outer(replica, update.id);
      all.push_back(std::move(update));
    }
  }
  std::ranges::sort(all, {}, &RequestUpdate::id);
  return all;
}

bool Replicas::Abort(RequestId id) {
  const auto [inner, replica] = std::lldiv(id, std::ssize(engines_));
  return id >= 0 && engines_[static_cast<size_t>(replica)]->Abort(inner);
}

bool Replicas::HasWork() const {
  return std::ranges::any_of(engines_, [](const auto& engine) { return engine->HasWork(); });
}

EngineMetrics Replicas::metrics() const {
  EngineMetrics sum;
  for (const auto& engine : engines_) sum += engine->metrics();
  return sum;
}

}  // namespace trimtab
