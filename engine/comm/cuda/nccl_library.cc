#include "engine/comm/cuda/nccl_library.h"

#include "engine/base/error.h"
#include "engine/base/io/loaded_library.h"

namespace trimtab {
namespace {

struct Loaded {
  NcclLibrary functions;
  std::string problem;
};

Loaded Load() {
  Loaded result;
  LoadedLibrary library("libnccl.so.2");
  NcclLibrary& f = result.functions;
  library.Find("ncclGetVersion", f.get_version);
  library.Find("ncclGetErrorString", f.get_error_string);
  library.Find("ncclGetLastError", f.get_last_error);
  library.Find("ncclGetUniqueId", f.get_unique_id);
  library.Find("ncclCommInitRankConfig", f.comm_init_rank_config);
  library.Find("ncclCommSplit", f.comm_split);
  library.Find("ncclCommAbort", f.comm_abort);
  library.Find("ncclCommDestroy", f.comm_destroy);
  library.Find("ncclCommGetAsyncError", f.comm_get_async_error);
  library.Find("ncclAllReduce", f.all_reduce);
  library.Find("ncclReduceScatter", f.reduce_scatter);
  library.Find("ncclAllGather", f.all_gather);
  library.Find("ncclBroadcast", f.broadcast);
  library.Find("ncclSend", f.send);
  library.Find("ncclRecv", f.recv);
  library.Find("ncclGroupStart", f.group_start);
  library.Find("ncclGroupEnd", f.group_end);
  result.problem = library.problem();
  if (!result.problem.empty()) return result;
  int version = 0;
  if (f.get_version(&version) != ncclSuccess || version < kOldestNccl) {
    result.problem = fmt::format("NCCL is version {}, needs {} or newer", NcclVersionName(version),
                                 NcclVersionName(static_cast<int>(kOldestNccl)));
  }
  return result;
}

const Loaded& LoadOnce() {
  static const Loaded loaded = Load();
  return loaded;
}

}  // namespace

const std::string& NcclUnavailable() { return LoadOnce().problem; }

const NcclLibrary& Nccl() {
  const Loaded& loaded = LoadOnce();
  if (!loaded.problem.empty()) {
    throw EnvironmentError("ranks that are processes need NCCL on device \"cuda\": " +
                           loaded.problem);
  }
  return loaded.functions;
}

std::string NcclVersionName(int version) {
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

}  // namespace trimtab
