// Errors of NCCL in words.
#pragma once

#include <fmt/format.h>
#include <string>

#include "engine/base/log.h"
#include "engine/comm/cuda/nccl_library.h"

namespace trimtab {

/// "ncclAllReduce of rank 1 ...: unhandled system error: <NCCL's own last words>"
inline std::string NcclMessage(const NcclLibrary& nccl, const std::string& call,
                               ncclResult_t result, ncclComm_t comm) {
  const char* detail = nccl.get_last_error(comm);
  std::string message = fmt::format("{}: {}", call, nccl.get_error_string(result));
  if (detail != nullptr && *detail != '\0') message += fmt::format(": {}", detail);
  return message;
}

/// For destructors, which must not throw.
inline void WarnIfNcclFailed(const NcclLibrary& nccl, const char* call, ncclResult_t result) {
  if (result != ncclSuccess) LogWarning("{}", NcclMessage(nccl, call, result, nullptr));
}

}  // namespace trimtab
