// Errors of NCCL in words.
#pragma once

#include <fmt/format.h>
#include <nccl.h>

#include <string>

#include "engine/base/log.h"

namespace trimtab {

/// "ncclAllReduce of rank 1 ...: unhandled system error: <NCCL's own last words>"
inline std::string NcclMessage(const std::string& call, ncclResult_t result, ncclComm_t comm) {
  const char* detail = ncclGetLastError(comm);
  std::string message = fmt::format("{}: {}", call, ncclGetErrorString(result));
  if (detail != nullptr && *detail != '\0') message += fmt::format(": {}", detail);
  return message;
}

/// For destructors, which must not throw.
inline void WarnIfNcclFailed(const char* call, ncclResult_t result) {
  if (result != ncclSuccess) LogWarning("{}", NcclMessage(call, result, nullptr));
}

}  // namespace trimtab
