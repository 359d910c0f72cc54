#include "engine/infer/replicas/replicas.h"

#include <algorithm>
#include <chrono>
#include <deque>
#include <thread>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/signals_blocked.h"

namespace trimtab {
namespace {

// How long a step waits: not so long that a new request would notice.
constexpr auto kPatience = std::chrono::milliseconds(1);

}  // namespace

struct Replicas::Replica {
  struct Posted {
    RequestId id = 0;  // as it is known outside
    GenerationRequest request{};
  };
  struct Moved {
    RequestId id = 0;  // likewise
    TransferredSequence sequence{};
  };

  int64_t index = 0;
  std::unique_ptr<DisaggregatedEngine> engine;
  std::deque<Posted> posted;           // requests that the engine does not have yet
  std::deque<Moved> moved;             // likewise, whose prompts another one has computed
  std::vector<RequestId> returned;     // ids of the engine: blocks that it may free
  std::vector<RequestId> aborted;      // ids outside, likewise
  std::map<RequestId, RequestId> ids;  // outside, by those of the engine
  std::vector<RequestUpdate> updates;  // that nobody has asked for yet, with ids outside
  EngineMetrics metrics;               // after its last step
  int64_t requests = 0;                // that are not answered whole, as it is known outside
  int64_t aborted_before = 0;          // requests that the engine never had
  bool woken = false;                  // there is something for it
  std::condition_variable work;
  std::thread thread;

  int64_t waiting() const { return requests - metrics.running; }
};

Replicas::Replica& Replicas::Fewest(std::span<const std::unique_ptr<Replica>> of) {
  return **std::ranges::min_element(of, {}, [](const auto& each) { return each->requests; });
}

void Replicas::Wake(Replica& replica) {
  replica.woken = true;
  replica.work.notify_one();
}

Replicas::Replicas(std::vector<std::unique_ptr<DisaggregatedEngine>> engines, int64_t prefill) {
  const auto count = std::ssize(engines);
  TRIMTAB_ASSERT(prefill >= 0 && prefill < count, "{} of {} replicas compute prompts alone",
                 prefill, count);
  limits_ = engines.front()->limits();
  limits_.sequences *= count - prefill;
  limits_.tokens_per_step *= count;
  limits_.waiting *= prefill > 0 ? prefill : count;
  vocab_size_ = engines.front()->vocab_size();
  for (std::unique_ptr<DisaggregatedEngine>& engine : engines) {
    Replica& replica = *replicas_.emplace_back(std::make_unique<Replica>());
    replica.index = std::ssize(replicas_) - 1;
    replica.metrics = engine->metrics();
    replica.engine = std::move(engine);
  }
  const std::span<const std::unique_ptr<Replica>> all(replicas_);
  first_ = prefill > 0 ? all.first(static_cast<size_t>(prefill)) : all;
  second_ = all.subspan(first_.size());
  for (const auto& replica : replicas_) {
    replica->thread = std::thread([this, each = replica.get()] {
      const SignalsBlocked blocked;
      Run(*each);
    });
  }
}

Replicas::~Replicas() {
  {
    const MutexLock lock(mutex_);
    leaving_ = true;
    for (const auto& replica : replicas_) replica->work.notify_one();
  }
  for (const auto& replica : replicas_) replica->thread.join();
}

std::variant<RequestId, Refusal> Replicas::AddRequest(GenerationRequest request) {
  const MutexLock lock(mutex_);
  const EngineLimits& limits = replicas_.front()->engine->limits();
  std::string fault = FaultOf(request, limits, vocab_size_);
  if (!fault.empty()) {
    ++refused_;
    return Refusal{std::move(fault)};
  }
  Replica& least = Fewest(first_);
  if (least.waiting() >= limits.waiting) {
    ++refused_;
    return Refusal{fmt::format("{} requests wait already", least.waiting()), /*busy=*/true};
  }
  least.posted.push_back({++last_id_, std::move(request)});
  ++least.requests;
  Wake(least);
  replica_of_[last_id_] = &least;
  return last_id_;
}

void Replicas::DeliverAborted(Replica& replica) {
  for (const RequestId id : std::exchange(replica.aborted, {})) {
    const auto inner =
        std::ranges::find(replica.ids, id, [](const auto& each) { return each.second; });
    if (inner != replica.ids.end()) {
      replica.engine->Abort(inner->first);
      replica.ids.erase(inner);
      continue;
    }
    // Or it is not there yet; or not any longer.
    const auto is_it = [id](const auto& each) { return each.id == id; };
    for (const Replica::Moved& each : replica.moved) {
      if (is_it(each)) Return(each.sequence.held);
    }
    replica.aborted_before += static_cast<int64_t>(std::erase_if(replica.posted, is_it) +
                                                   std::erase_if(replica.moved, is_it));
  }
}

void Replicas::Return(const PinnedBlocks& held) {
  Replica& keeper = *replicas_[static_cast<size_t>(held.engine)];
  keeper.returned.push_back(held.id);
  Wake(keeper);
}

void Replicas::HandOver(Replica& replica) {
  for (TransferredSequence& each : replica.engine->TakePrefilled()) {
    const auto id = replica.ids.find(each.held.id);
    TRIMTAB_ASSERT(id != replica.ids.end(), "request {} is ready, and unknown", each.held.id);
    each.held.engine = replica.index;
    Replica& next = Fewest(second_);
    next.moved.push_back({id->second, std::move(each)});
    replica_of_.at(id->second) = &next;
    --replica.requests;
    ++next.requests;
    Wake(next);
    replica.ids.erase(id);
  }
}

void Replicas::Deliver(Replica& replica) {
  replica.woken = false;
  DisaggregatedEngine& engine = *replica.engine;
  DeliverAborted(replica);
  for (const PinnedBlocks& each : engine.TakeReleasable()) Return(each);
  for (const RequestId id : std::exchange(replica.returned, {})) engine.ReleaseBlocksOf(id);
  HandOver(replica);
  // Those that it has no place for now wait for its next step.
  while (!replica.posted.empty() && engine.metrics().waiting < engine.limits().waiting) {
    const auto taken = engine.AddRequest(std::move(replica.posted.front().request));
    const auto* id = std::get_if<RequestId>(&taken);
    TRIMTAB_ASSERT(id != nullptr, "a replica refuses what it has a place for: {}",
                   std::get<Refusal>(taken).reason);
    replica.ids[*id] = replica.posted.front().id;
    replica.posted.pop_front();
  }
  for (Replica::Moved& each : std::exchange(replica.moved, {})) {
    replica.ids[engine.AddPrefilled(std::move(each.sequence))] = each.id;
  }
  replica.metrics = engine.metrics();
}

bool Replicas::Prepare(Replica& replica) {
  MutexLock lock(mutex_);
  while (!leaving_) {
    Deliver(replica);
    if (replica.engine->HasWork()) return true;
    lock.Wait(replica.work, [&]() TRIMTAB_REQUIRES(mutex_) { return leaving_ || replica.woken; });
  }
  return false;
}

void Replicas::Take(Replica& replica, std::vector<RequestUpdate> updates) {
  const MutexLock lock(mutex_);
  replica.metrics = replica.engine->metrics();
  for (RequestUpdate& update : updates) {
    const auto id = replica.ids.find(update.id);
    TRIMTAB_ASSERT(id != replica.ids.end(), "an update of request {}", update.id);
    update.id = id->second;
    if (update.finish != FinishReason::kNone) replica.ids.erase(id);
    replica.updates.push_back(std::move(update));
  }
  if (!replica.updates.empty()) arrived_.notify_one();
}

void Replicas::Run(Replica& replica) {
  try {
    while (Prepare(replica)) Take(replica, replica.engine->Step());
  } catch (...) {
    const MutexLock lock(mutex_);
    failure_ = std::current_exception();
    arrived_.notify_one();
  }
}

std::map<RequestId, RequestUpdate> Replicas::Collect() {
  std::map<RequestId, RequestUpdate> all;
  for (const auto& replica : replicas_) {
    for (RequestUpdate& update : std::exchange(replica->updates, {})) {
      if (!replica_of_.contains(update.id)) continue;  // aborted meanwhile
      RequestUpdate& whole = all[update.id];
      whole.id = update.id;
      whole.finish = update.finish;
      whole.failure = std::move(update.failure);
      std::ranges::move(update.tokens, std::back_inserter(whole.tokens));
    }
  }
  return all;
}

std::vector<RequestUpdate> Replicas::Step() {
  MutexLock lock(mutex_);
  const auto has_news = [this]() TRIMTAB_REQUIRES(mutex_) {
    return failure_ != nullptr ||
           std::ranges::any_of(replicas_, [](const auto& each) { return !each->updates.empty(); });
  };
  if (!replica_of_.empty()) lock.WaitFor(arrived_, kPatience, has_news);
  if (failure_ != nullptr) std::rethrow_exception(failure_);
  std::vector<RequestUpdate> updates;
  for (auto& [id, update] : Collect()) {
    if (update.finish != FinishReason::kNone) {
      --replica_of_.at(id)->requests;
      replica_of_.erase(id);
    }
    updates.push_back(std::move(update));
  }
  return updates;
}

bool Replicas::HasWork() const {
  const MutexLock lock(mutex_);
  return !replica_of_.empty();
}

bool Replicas::Abort(RequestId id) {
  const MutexLock lock(mutex_);
  const auto found = replica_of_.find(id);
  if (found == replica_of_.end()) return false;
  Replica& replica = *found->second;
  replica_of_.erase(found);
  --replica.requests;
  replica.aborted.push_back(id);
  Wake(replica);
  return true;
}

EngineMetrics Replicas::metrics() const {
  const MutexLock lock(mutex_);
  EngineMetrics sum;
  sum.refused_requests = refused_;
  for (const auto& replica : replicas_) {
    sum += replica->metrics;
    sum.waiting += std::ssize(replica->posted) + std::ssize(replica->moved);
    sum.aborted_requests += replica->aborted_before;
  }
  return sum;
}

}  // namespace trimtab
