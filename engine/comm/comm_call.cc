#include "engine/comm/comm_call.h"

#include <fmt/format.h>

namespace trimtab {

bool CommCall::Matches(const CommCall& other) const {
  return kind == other.kind && dtype == other.dtype && count == other.count && op == other.op &&
         peer == other.peer && device_kind == other.device_kind;
}

bool CommCall::Completes(const CommCall& other, int other_rank, int rank) const {
  const bool sends = kind == CollectiveKind::kSend && other.kind == CollectiveKind::kRecv;
  const bool receives = kind == CollectiveKind::kRecv && other.kind == CollectiveKind::kSend;
  return (sends || receives) && peer == other_rank && other.peer == rank && dtype == other.dtype &&
         count == other.count && device_kind == other.device_kind;
}

std::string CommCall::Describe() const {
  const bool on_gpu = device_kind == DeviceKind::kCuda;
  const std::string what = fmt::format("{} {}{}", count, Name(dtype), on_gpu ? " on cuda" : "");
  switch (kind) {
    case CollectiveKind::kBarrier:
      return "barrier";
    case CollectiveKind::kAllReduce:
      return fmt::format("all_reduce({}) of {}", op == ReduceOp::kSum ? "sum" : "max", what);
    case CollectiveKind::kBroadcast:
      return fmt::format("broadcast of {} from rank {}", what, peer);
    case CollectiveKind::kSend:
      return fmt::format("send of {} to rank {}", what, peer);
    case CollectiveKind::kRecv:
      return fmt::format("recv of {} from rank {}", what, peer);
    case CollectiveKind::kAllToAll:
      return fmt::format("{} of {}{}", Name(kind), Name(dtype), on_gpu ? " on cuda" : "");
    case CollectiveKind::kReduceScatter:
    case CollectiveKind::kAllGather:
      break;
  }
  return fmt::format("{} of {} per rank", Name(kind), what);
}

void CheckParts(GroupKind group, int sender, int64_t sent, int receiver, int64_t received) {
  if (sent == received) return;
  throw Error(ExitCode::kInternal,
              fmt::format("all_to_all in the {} group: rank {} sends {} elements to rank {}, which "
                          "expects {}",
                          Name(group), sender, sent, receiver, received));
}

std::string DescribeMismatch(GroupKind group, int size, int a, const CommCall& call_a, int b,
                             const CommCall& call_b) {
  return fmt::format("{} group of {} ranks: rank {} calls {}, but rank {} calls {}", Name(group),
                     size, a, call_a.Describe(), b, call_b.Describe());
}

}  // namespace trimtab
