#include "engine/comm/cuda/nccl_membership.h"

#include <cstring>
#include <exception>
#include <utility>

#include "engine/comm/cuda/nccl_check.h"

namespace trimtab {

static_assert(sizeof(NcclId) == sizeof(ncclUniqueId));

NcclMembership::NcclMembership(const NcclLibrary& library, NcclGroups& groups, std::string name,
                               int rank, int size, ShareNcclId share_id)
    : library_(library),
      groups_(groups),
      name_(std::move(name)),
      rank_(rank),
      size_(size),
      share_id_(std::move(share_id)) {}

ncclComm_t NcclMembership::Use() {
  if (comm_ != nullptr) return comm_;
  groups_.ThrowIfFailed();
  try {
    comm_ = Make();
  } catch (const std::exception& error) {
    groups_.AbortAll(error.what());
    throw;
  }
  groups_.Add(comm_, name_);
  share_id_ = nullptr;  // with what it holds
  return comm_;
}

ncclComm_t NcclMembership::Make() {
  const NcclId id = share_id_();
  ncclUniqueId unique;
  std::memcpy(&unique, id.data(), id.size());
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 1;
  ncclComm_t made = nullptr;
  const ncclResult_t result = library_.comm_init_rank_config(&made, size_, unique, rank_, &config);
  if (result != ncclSuccess) {
    throw CommError(
        NcclMessage(library_, fmt::format("ncclCommInitRankConfig of rank {} in {}", rank_, name_),
                    result, nullptr));
  }
  return made;
}

void NcclMembership::Destroy() {
  if (comm_ != nullptr) groups_.Destroy(comm_);
  comm_ = nullptr;
}

}  // namespace trimtab
