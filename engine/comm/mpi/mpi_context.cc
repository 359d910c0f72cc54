#include "engine/comm/mpi/mpi_context.h"

#include <utility>

#include "engine/comm/cuda_comm.h"
#include "engine/comm/mpi/mpi_communicator.h"
#include "engine/device/cuda/loader.h"

namespace trimtab {
namespace {

/// The group over NCCL. When it is first used, its ranks share the id of the first one through
/// `host`, the same group.
std::unique_ptr<Communicator> MakeNccl(std::shared_ptr<Communicator> host, Device& device) {
  const CudaComm& cuda = CudaCommOf(device);
  if (cuda.make_nccl == nullptr) {
    throw EnvironmentError("the CUDA backend was built without NCCL");
  }
  const auto share_id = [host, &cuda] {
    NcclId id{};
    if (host->rank() == 0) id = cuda.make_nccl_id();
    BroadcastHostBytes(*host, std::as_writable_bytes(std::span(id)), 0);
    return id;
  };
  return cuda.make_nccl(device, host->group(), host->rank(), host->size(), share_id);
}

/// Finds out, while a rank waits for its GPU, that the others will not do their part.
class DeviceWatch final : public WaitWatch {
 public:
  explicit DeviceWatch(MpiWorld& world) : world_(world) {}
  void Begin() override { world_.BeginDeviceWait(); }
  void End() override { world_.EndDeviceWait(); }
  void Check() override { world_.ThrowIfFailed(); }

 private:
  MpiWorld& world_;
};

}  // namespace

void CheckMpiWorldSize(int processes, const ParallelConfig& layout, const char* launcher) {
  if (processes == layout.world_size()) return;
  throw UsageError(fmt::format(
      "{} started {} processes, but the layout {} has {} ranks; expected {} -n {}", launcher,
      processes, ToString(layout), layout.world_size(), launcher, layout.world_size()));
}

ParallelContext MakeMpiContext(MpiWorld& world, const ParallelConfig& layout, Device& device,
                               bool has_experts, int64_t kv_copies) {
  const int ranks = static_cast<int>(layout.world_size());
  TRIMTAB_ASSERT(world.size() % ranks == 0, "{} processes, {} ranks", world.size(), ranks);
  const int rank = world.rank() % ranks;
  const auto make_host = [&](GroupKind kind) {
    std::vector<int> members = GroupMembers(layout, kind, rank, kv_copies);
    for (int& member : members) member += world.rank() - rank;
    return MakeMpiCommunicator(world, kind, std::move(members));
  };
  ParallelContext context =
      MakeContext(layout, rank, kv_copies, [&](GroupKind kind, const GroupPlace&) {
        auto host = make_host(kind);
        const ParallelGrid grid = kProcessGroups[static_cast<size_t>(kind)].grid;
        const bool used = has_experts || grid == ParallelGrid::kDense;
        if (device.kind() != DeviceKind::kCuda || host->size() == 1 || !used) return host;
        return MakeNccl(std::move(host), device);
      });
  context.host = make_host(GroupKind::kWorld);
  if (device.kind() == DeviceKind::kCuda && world.size() > 1) {
    WatchDevice(device, std::make_unique<DeviceWatch>(world));
  }
  return context;
}

}  // namespace trimtab
