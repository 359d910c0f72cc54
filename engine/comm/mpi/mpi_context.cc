#include "engine/comm/mpi/mpi_context.h"

#include <cstring>
#include <numeric>

#include "engine/comm/cuda_comm.h"
#include "engine/comm/mpi/mpi_communicator.h"

namespace trimtab {
namespace {

/// The world ranks of the ranks that share this one's tensor-parallel or data-parallel group.
std::vector<int> MembersOf(GroupKind group, const ParallelContext& place) {
  const int tp = static_cast<int>(place.layout.tp);
  const bool tensor = group == GroupKind::kTensor;
  std::vector<int> members;
  for (int i = 0; i < (tensor ? place.layout.tp : place.layout.dp); ++i) {
    members.push_back(tensor ? place.dp_rank * tp + i : i * tp + place.tp_rank);
  }
  return members;
}

/// The group over NCCL. Its ranks share the id of the first one through `host`, the same group.
std::unique_ptr<Communicator> MakeNccl(Communicator& host, Device& device) {
  const CudaComm& cuda = CudaCommOf(device);
  if (cuda.make_nccl == nullptr) {
    throw EnvironmentError("the CUDA backend was built without NCCL");
  }
  NcclId id{};
  if (host.rank() == 0) id = cuda.make_nccl_id();
  const auto memory = MakeCpuDevice(1);
  Tensor tensor = Tensor::Empty(*memory, {static_cast<int64_t>(id.size() / sizeof(int32_t))},
                                DType::kI32, MemoryTag::kCommunication);
  std::memcpy(tensor.raw(), id.data(), id.size());
  host.Broadcast(tensor, 0);
  std::memcpy(id.data(), tensor.raw(), id.size());
  return cuda.make_nccl(device, host.group(), host.rank(), host.size(), id);
}

}  // namespace

void CheckMpiWorldSize(int processes, const ParallelConfig& layout) {
  if (processes == layout.world_size()) return;
  throw UsageError(fmt::format(
      "mpirun started {} processes, but the layout {} has {} ranks; expected mpirun -n {}",
      processes, ToString(layout), layout.world_size(), layout.world_size()));
}

ParallelContext MakeMpiContext(MpiWorld& world, const ParallelConfig& layout, Device& device) {
  CheckMpiWorldSize(world.size(), layout);
  ParallelContext context = PlaceRank(layout, world.rank());
  std::vector<int> everyone(static_cast<size_t>(world.size()));
  std::iota(everyone.begin(), everyone.end(), 0);
  context.host = MakeMpiCommunicator(world, GroupKind::kWorld, everyone);

  const auto make = [&](GroupKind group, std::vector<int> members) {
    auto host = MakeMpiCommunicator(world, group, std::move(members));
    if (device.kind() != DeviceKind::kCuda || host->size() == 1) return host;
    return MakeNccl(*host, device);
  };
  context.world = make(GroupKind::kWorld, everyone);
  context.tp = make(GroupKind::kTensor, MembersOf(GroupKind::kTensor, context));
  context.dp = make(GroupKind::kData, MembersOf(GroupKind::kData, context));
  return context;
}

}  // namespace trimtab
