// NcclGroups: the NCCL communicators of one rank, which fail together.
//
// A kernel of NCCL spins until its peers come. When one does not, the rank must end that kernel,
// and with it all others: each may stand behind another in a stream.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "engine/base/mutex.h"
#include "engine/comm/cuda/nccl_library.h"

namespace trimtab {

/// Safe from any thread.
class NcclGroups {
 public:
  NcclGroups() : NcclGroups(Nccl()) {}
  explicit NcclGroups(const NcclLibrary& library) : library_(library) {}
  ~NcclGroups() { AbortAll("the rank has ended"); }
  NcclGroups(const NcclGroups&) = delete;
  NcclGroups& operator=(const NcclGroups&) = delete;

  /// From now on `comm` is one of them; `name` is for errors: "the dp group of 8".
  void Add(ncclComm_t comm, std::string name);
  /// Waits for what is under way in it. No effect after AbortAll.
  void Destroy(ncclComm_t comm);

  /// The result of `call`, or the error that NCCL came upon before by itself. Throws CommError with
  /// the reason after AbortAll.
  ncclResult_t Call(ncclComm_t comm, const std::function<ncclResult_t()>& call);

  /// Throws CommError when any of them has failed or was aborted: their kernels may never end.
  void ThrowIfFailed();

  /// Ends all, and with them their kernels; once. Each from a thread of its own: an abort may wait
  /// for a kernel that stands behind one of another communicator, which must be told as well.
  void AbortAll(const std::string& reason);

 private:
  struct Member {
    ncclComm_t comm = nullptr;
    std::string name;
  };

  void ThrowIfAborted() const TRIMTAB_REQUIRES(mutex_);
  ncclResult_t ErrorOf(ncclComm_t comm) const;

  const NcclLibrary& library_;
  Mutex mutex_;
  std::vector<Member> members_ TRIMTAB_GUARDED_BY(mutex_);
  bool aborted_ TRIMTAB_GUARDED_BY(mutex_) = false;
  std::string reason_ TRIMTAB_GUARDED_BY(mutex_);
};

}  // namespace trimtab
