// libnccl, loaded when a group of ranks first asks for it: one GPU needs none.
#pragma once

#include <nccl.h>

#include <string>

#include "engine/comm/nccl_versions.h"

namespace trimtab {

/// The functions of NCCL that the project calls.
struct NcclLibrary {
  decltype(&ncclGetVersion) get_version = nullptr;
  decltype(&ncclGetErrorString) get_error_string = nullptr;
  decltype(&ncclGetLastError) get_last_error = nullptr;
  decltype(&ncclGetUniqueId) get_unique_id = nullptr;
  decltype(&ncclCommInitRankConfig) comm_init_rank_config = nullptr;
  decltype(&ncclCommSplit) comm_split = nullptr;
  decltype(&ncclCommAbort) comm_abort = nullptr;
  decltype(&ncclCommDestroy) comm_destroy = nullptr;
  decltype(&ncclCommGetAsyncError) comm_get_async_error = nullptr;
  decltype(&ncclAllReduce) all_reduce = nullptr;
  decltype(&ncclReduceScatter) reduce_scatter = nullptr;
  decltype(&ncclAllGather) all_gather = nullptr;
  decltype(&ncclBroadcast) broadcast = nullptr;
  decltype(&ncclSend) send = nullptr;
  decltype(&ncclRecv) recv = nullptr;
  decltype(&ncclGroupStart) group_start = nullptr;
  decltype(&ncclGroupEnd) group_end = nullptr;
};

/// Why NCCL cannot be used on this machine, in one line; empty when it can. Loads it at the first
/// call; safe from any thread; never throws.
const std::string& NcclUnavailable();

/// The library. Throws EnvironmentError with NcclUnavailable() where it is missing.
const NcclLibrary& Nccl();

/// "2.26.2".
std::string NcclVersionName(int version);

}  // namespace trimtab
