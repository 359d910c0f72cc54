#include "engine/comm/cuda/nccl_groups.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "engine/comm/communicator.h"
#include "engine/comm/cuda/nccl_check.h"

namespace trimtab {

void NcclGroups::Add(ncclComm_t comm, std::string name) {
  const MutexLock lock(mutex_);
  members_.push_back({comm, std::move(name)});
}

void NcclGroups::Destroy(ncclComm_t comm) {
  {
    const MutexLock lock(mutex_);
    if (std::erase_if(members_, [comm](const Member& each) { return each.comm == comm; }) == 0) {
      return;
    }
  }
  WarnIfNcclFailed(library_, "ncclCommDestroy", library_.comm_destroy(comm));
}

ncclResult_t NcclGroups::Call(ncclComm_t comm, const std::function<ncclResult_t()>& call) {
  const MutexLock lock(mutex_);
  ThrowIfAborted();
  const ncclResult_t failure = ErrorOf(comm);
  return failure != ncclSuccess ? failure : call();
}

void NcclGroups::ThrowIfFailed() {
  const MutexLock lock(mutex_);
  ThrowIfAborted();
  for (const Member& each : members_) {
    const ncclResult_t failure = ErrorOf(each.comm);
    if (failure != ncclSuccess) {
      throw CommError(NcclMessage(library_, each.name, failure, each.comm));
    }
  }
}

void NcclGroups::AbortAll(const std::string& reason) {
  const MutexLock lock(mutex_);
  if (aborted_) return;
  aborted_ = true;
  reason_ = reason;
  std::vector<std::thread> threads;
  for (const Member& each : members_) {
    threads.emplace_back([this, comm = each.comm] {
      WarnIfNcclFailed(library_, "ncclCommAbort", library_.comm_abort(comm));
    });
  }
  for (std::thread& thread : threads) thread.join();
  members_.clear();
}

void NcclGroups::ThrowIfAborted() const {
  if (aborted_) throw CommError(reason_);
}

ncclResult_t NcclGroups::ErrorOf(ncclComm_t comm) const {
  ncclResult_t failure = ncclSuccess;
  const ncclResult_t asked = library_.comm_get_async_error(comm, &failure);
  if (asked != ncclSuccess) return asked;
  return failure == ncclInProgress ? ncclSuccess : failure;
}

}  // namespace trimtab
