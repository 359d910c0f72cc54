// In the place of nccl_communicator.cc where the toolkit has no NCCL.
#include "engine/base/error.h"
#include "engine/comm/cuda/nccl_communicator.h"

namespace trimtab {
namespace {

[[noreturn]] void Refuse() {
  throw EnvironmentError(
      "ranks that are processes need NCCL on device \"cuda\", and this build has none (made where "
      "the CUDA toolkit has no NCCL)");
}

}  // namespace

NcclId MakeNcclId() { Refuse(); }

std::unique_ptr<Communicator> MakeNcclCommunicator(Device&, GroupKind, int, int, ShareNcclId) {
  Refuse();
}

std::unique_ptr<WaitWatch> WatchNccl(Device&, std::unique_ptr<WaitWatch> watch) { return watch; }

}  // namespace trimtab
