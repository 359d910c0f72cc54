// NcclMembership: the NCCL communicator of one rank in one group, made when it is first used. Each
// takes memory of the GPU and connections, and many a run sends nothing in some of its groups.
#pragma once

#include <string>

#include "engine/comm/cuda/nccl_groups.h"
#include "engine/comm/cuda_comm.h"

namespace trimtab {

class NcclMembership {
 public:
  /// `name` is for errors: "the dp group of 8". The communicator becomes one of `groups`; both must
  /// outlive this.
  NcclMembership(const NcclLibrary& library, NcclGroups& groups, std::string name, int rank,
                 int size, ShareNcclId share_id);
  NcclMembership(const NcclMembership&) = delete;
  NcclMembership& operator=(const NcclMembership&) = delete;

  /// Returns the communicator, or null before its first use.
  ncclComm_t made() const { return comm_; }
  /// Returns the communicator. The first call makes it, and returns when all ranks of the group
  /// have called it. Throws CommError. Where it cannot be made all `groups` are aborted: their
  /// kernels may wait for ranks that wait for this group, and the rank must get to tell them.
  ncclComm_t Use();
  /// Waits for what is under way in it. No effect before its first use.
  void Destroy();

  const std::string& name() const { return name_; }

 private:
  ncclComm_t Make();

  const NcclLibrary& library_;
  NcclGroups& groups_;
  const std::string name_;
  const int rank_;
  const int size_;
  ShareNcclId share_id_;
  ncclComm_t comm_ = nullptr;
};

}  // namespace trimtab
