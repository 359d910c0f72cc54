#include "engine/infer/replicas/remote_replica.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <utility>

#include "engine/base/error.h"

namespace trimtab {

RemoteReplica::RemoteReplica(Socket socket, std::shared_ptr<DistributedExecutor> own,
                             const EngineLimits& limits)
    : own_(std::move(own)),
      link_(std::move(socket), [this] { own_->ThrowIfFailed(); }),
      limits_(limits) {
  AwaitReport();
}

std::vector<RequestUpdate> RemoteReplica::AwaitReport() {
  const std::optional<std::string> message = link_.Receive();
  // Why it is gone, the ranks of this process come to know.
  if (!message) own_->ThrowFailure();
  ReplicaReport report = UnpackReport(*message);
  if (report.code != ExitCode::kOk) throw Error(report.code, report.failure);
  metrics_ = report.metrics;
  has_work_ = report.has_work;
  for (TransferredSequence& each : report.ready) {
    open_.erase(each.held.id);
    ready_.push_back(std::move(each));
  }
  std::ranges::move(report.copied, std::back_inserter(copied_));
  return std::move(report.updates);
}

EngineMetrics RemoteReplica::metrics() const {
  EngineMetrics metrics = metrics_;
  metrics.aborted_requests += aborted_ready_;
  return metrics;
}

std::variant<RequestId, Refusal> RemoteReplica::AddRequest(GenerationRequest request) {
  open_.insert(++last_id_);
  orders_.added.push_back({last_id_, std::move(request)});
  ++metrics_.waiting;
  return last_id_;
}

bool RemoteReplica::Abort(RequestId id) {
  const auto ready =
      std::ranges::find_if(ready_, [id](const auto& each) { return each.held.id == id; });
  if (ready != ready_.end()) {
    ready_.erase(ready);
    ++aborted_ready_;
    ReleaseBlocksOf(id);
    return true;
  }
  if (open_.erase(id) == 0) return false;
  orders_.aborted.push_back(id);
  return true;
}

bool RemoteReplica::HasWork() const {
  const bool has_orders = !orders_.added.empty() || !orders_.moved.empty() ||
                          !orders_.released.empty() || !orders_.aborted.empty();
  return has_work_ || has_orders;
}

std::vector<RequestUpdate> RemoteReplica::Step() {
  link_.Send(Pack(std::exchange(orders_, {})));
  std::vector<RequestUpdate> updates = AwaitReport();
  for (const RequestUpdate& update : updates) {
    if (update.finish != FinishReason::kNone) open_.erase(update.id);
  }
  return updates;
}

std::vector<TransferredSequence> RemoteReplica::TakePrefilled() {
  return std::exchange(ready_, {});
}

void RemoteReplica::ReleaseBlocksOf(RequestId id) { orders_.released.push_back(id); }

RequestId RemoteReplica::AddPrefilled(TransferredSequence sequence) {
  open_.insert(++last_id_);
  orders_.moved.push_back({last_id_, std::move(sequence)});
  ++metrics_.waiting;
  return last_id_;
}

std::vector<PinnedBlocks> RemoteReplica::TakeReleasable() { return std::exchange(copied_, {}); }

namespace {

/// An engine as rank 0 knows it: under other ids.
class Ordered {
 public:
  explicit Ordered(DisaggregatedEngine& engine) : engine_(engine) {}

  void Obey(ReplicaOrders orders) {
    for (ReplicaOrders::Added& each : orders.added) {
      const auto taken = engine_.AddRequest(std::move(each.request));
      const auto* id = std::get_if<RequestId>(&taken);
      TRIMTAB_ASSERT(id != nullptr, "a replica refuses what it has a place for: {}",
                     std::get<Refusal>(taken).reason);
      ids_[*id] = each.id;
    }
    for (ReplicaOrders::Moved& each : orders.moved) {
      ids_[engine_.AddPrefilled(std::move(each.sequence))] = each.id;
    }
    for (const RequestId id : orders.released) engine_.ReleaseBlocksOf(TakeOwn(held_, id));
    for (const RequestId id : orders.aborted) engine_.Abort(TakeOwn(ids_, id));
  }

  ReplicaReport Step() {
    ReplicaReport report;
    if (engine_.HasWork()) report.updates = engine_.Step();
    for (RequestUpdate& update : report.updates) {
      const RequestId own = update.id;
      update.id = ids_.at(own);
      if (update.finish != FinishReason::kNone) ids_.erase(own);
    }
    report.ready = engine_.TakePrefilled();
    for (TransferredSequence& each : report.ready) {
      const auto known = ids_.extract(each.held.id);
      each.held.id = known.mapped();
      held_[known.key()] = known.mapped();
    }
    report.copied = engine_.TakeReleasable();
    report.metrics = engine_.metrics();
    report.has_work = engine_.HasWork();
    return report;
  }

 private:
  using Ids = std::map<RequestId, RequestId>;  // those of rank 0, by the engine's own

  static RequestId TakeOwn(Ids& ids, RequestId id) {
    const auto known = std::ranges::find(ids, id, [](const auto& each) { return each.second; });
    TRIMTAB_ASSERT(known != ids.end(), "request {} is unknown", id);
    const RequestId own = known->first;
    ids.erase(known);
    return own;
  }

  DisaggregatedEngine& engine_;
  Ids ids_;
  Ids held_;  // of sequences that others go on with
};

}  // namespace

void AnswerOrders(ReplicaLink& link, DisaggregatedEngine& engine) {
  Ordered ordered(engine);
  link.Send(Pack(ReplicaReport{.metrics = engine.metrics()}));
  while (const std::optional<std::string> message = link.Receive()) {
    ordered.Obey(UnpackOrders(*message));
    link.Send(Pack(ordered.Step()));
  }
}

void TellFailure(ReplicaLink& link, const std::exception& failure) {
  const auto* own = dynamic_cast<const Error*>(&failure);
  link.Send(Pack(ReplicaReport{.code = own != nullptr ? own->code() : ExitCode::kInternal,
                               .failure = failure.what()}));
}

}  // namespace trimtab
