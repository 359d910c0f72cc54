#include "engine/comm/cuda/nccl_links.h"

namespace trimtab {
namespace {

/// Ranks between which messages go one way.
struct Edge {
  int from = 0;
  int to = 0;
};

/// Steps of making the links: in each, a rank is at the end of one edge at most.
std::vector<std::vector<Edge>> PlanSteps(int size) {
  std::vector<std::vector<Edge>> steps;
  const auto add = [&](int begin, int end, bool forward) {
    std::vector<Edge>& step = steps.emplace_back();
    for (int rank = begin; rank < end; rank += 2) {
      const int next = (rank + 1) % size;
      step.push_back(forward ? Edge{rank, next} : Edge{next, rank});
    }
  };
  const int pairs_end = size / 2 * 2;  // the last rank of an odd ring has no partner among pairs
  for (const bool forward : {true, false}) {
    add(0, pairs_end, forward);
    if (size == 2) continue;
    add(1, pairs_end, forward);
    if (size % 2 != 0) add(size - 1, size, forward);
  }
  return steps;
}

}  // namespace

NcclLinks::NcclLinks(NcclGroups& groups, ncclComm_t group, const std::string& name, int rank,
                     int size,
                     const std::function<void(const char* call, ncclResult_t result)>& check)
    : groups_(groups) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 1;
  for (const std::vector<Edge>& step : PlanSteps(size)) {
    const Edge* own = nullptr;
    for (const Edge& edge : step) {
      if (edge.from == rank || edge.to == rank) own = &edge;
    }
    const bool sends = own != nullptr && own->from == rank;
    ncclComm_t comm = nullptr;
    check("ncclCommSplit", Nccl().comm_split(group, own == nullptr ? NCCL_SPLIT_NOCOLOR : own->from,
                                             sends ? 0 : 1, &comm, &config));
    if (own == nullptr) continue;
    groups.Add(comm, name);
    auto stream = std::make_unique<CudaStream>(CudaStream::Priority::kHigh);
    const NcclLink link = {comm, stream->get(), sends ? 1 : 0};
    entries_.push_back({sends ? own->to : own->from, sends, std::move(stream), link});
  }
}

const NcclLink* NcclLinks::Find(int peer, bool sends) const {
  for (const Entry& entry : entries_) {
    if (entry.peer == peer && entry.sends == sends) return &entry.link;
  }
  return nullptr;
}

void NcclLinks::Destroy() {
  for (const Entry& entry : entries_) groups_.Destroy(entry.link.comm);
  entries_.clear();
}

}  // namespace trimtab
