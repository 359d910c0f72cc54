#include "engine/infer/remote_replica.h"

#include <algorithm>
#include <map>
#include <utility>

#include "engine/base/error.h"

namespace trimtab {

RemoteReplica::RemoteReplica(Socket socket, std::shared_ptr<RankRunner> own,
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
  return std::move(report.updates);
}

std::variant<RequestId, Refusal> RemoteReplica::AddRequest(GenerationRequest request) {
  open_.insert(++last_id_);
  orders_.added.push_back({last_id_, std::move(request)});
  ++metrics_.waiting;
  return last_id_;
}

bool RemoteReplica::Abort(RequestId id) {
  if (open_.erase(id) == 0) return false;
  orders_.aborted.push_back(id);
  return true;
}

bool RemoteReplica::HasWork() const {
  return !open_.empty() || !orders_.aborted.empty() || !orders_.added.empty();
}

std::vector<RequestUpdate> RemoteReplica::Step() {
  link_.Send(Pack(std::exchange(orders_, {})));
  std::vector<RequestUpdate> updates = AwaitReport();
  for (const RequestUpdate& update : updates) {
    if (update.finish != FinishReason::kNone) open_.erase(update.id);
  }
  return updates;
}

void RemoteReplica::ReleaseBlocksOf(RequestId id) {
  TRIMTAB_ASSERT(false, "request {} has no blocks here", id);
}

RequestId RemoteReplica::AddMoved(MovedSequence sequence) {
  TRIMTAB_ASSERT(false, "request {} cannot move to another process", sequence.held.id);
  return 0;
}

void AnswerOrders(ReplicaLink& link, Engine& engine) {
  std::map<RequestId, RequestId> ids;  // those of rank 0, by those of the engine
  link.Send(Pack(ReplicaReport{.metrics = engine.metrics()}));
  while (const std::optional<std::string> message = link.Receive()) {
    ReplicaOrders orders = UnpackOrders(*message);
    for (ReplicaOrders::Added& each : orders.added) {
      const auto taken = engine.AddRequest(std::move(each.request));
      const auto* id = std::get_if<RequestId>(&taken);
      TRIMTAB_ASSERT(id != nullptr, "a replica refuses what it has a place for: {}",
                     std::get<Refusal>(taken).reason);
      ids[*id] = each.id;
    }
    for (const RequestId id : orders.aborted) {
      const auto own = std::ranges::find(ids, id, [](const auto& each) { return each.second; });
      TRIMTAB_ASSERT(own != ids.end(), "request {} ends, and is unknown", id);
      engine.Abort(own->first);
      ids.erase(own);
    }
    ReplicaReport report;
    if (engine.HasWork()) report.updates = engine.Step();
    for (RequestUpdate& update : report.updates) {
      const auto id = ids.find(update.id);
      TRIMTAB_ASSERT(id != ids.end(), "an update of request {}", update.id);
      update.id = id->second;
      if (update.finish != FinishReason::kNone) ids.erase(id);
    }
    report.metrics = engine.metrics();
    link.Send(Pack(report));
  }
}

void TellFailure(ReplicaLink& link, const std::exception& failure) {
  const auto* own = dynamic_cast<const Error*>(&failure);
  link.Send(Pack(ReplicaReport{.code = own != nullptr ? own->code() : ExitCode::kInternal,
                               .failure = failure.what()}));
}

}  // namespace trimtab
