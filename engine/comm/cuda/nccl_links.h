// NcclLinks: where a NCCL group's messages between two ranks go.
//
// NCCL works through the calls of one communicator, and of one stream, in order: a send that waits
// for its receive would hold up the receive behind it, and two neighbours that first send to each
// other would wait for ever. So each direction between two neighbours is a communicator of its own,
// with a stream of its own.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "engine/comm/cuda/nccl_groups.h"
#include "engine/device/cuda/stream.h"

namespace trimtab {

/// The way from one rank to another, seen from either end.
struct NcclLink {
  ncclComm_t comm = nullptr;
  cudaStream_t stream = nullptr;
  int peer = 0;  // number of the other end in `comm`
};

class NcclLinks {
 public:
  /// Links both ways between neighbours on the ring of the ranks of `group`, which is called `name`
  /// in errors. All of them call it together. Their communicators become some of `groups`, which
  /// must outlive this. `check` throws for results that are errors.
  NcclLinks(NcclGroups& groups, ncclComm_t group, const std::string& name, int rank, int size,
            const std::function<void(const char* call, ncclResult_t result)>& check);
  NcclLinks(const NcclLinks&) = delete;
  NcclLinks& operator=(const NcclLinks&) = delete;

  /// The link to send to, or to receive from, rank `peer`; nullptr when it is no neighbour.
  const NcclLink* to(int peer) const { return Find(peer, /*sends=*/true); }
  const NcclLink* from(int peer) const { return Find(peer, /*sends=*/false); }

  /// Waits for what is under way.
  void Destroy();

 private:
  struct Entry {
    int peer = 0;  // in the group
    bool sends = false;
    std::unique_ptr<CudaStream> stream;
    NcclLink link;
  };

  const NcclLink* Find(int peer, bool sends) const;

  NcclGroups& groups_;
  std::vector<Entry> entries_;
};

}  // namespace trimtab
