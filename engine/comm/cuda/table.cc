#include "engine/comm/cuda/table.h"

#include "engine/comm/cuda/inproc_kernels.h"
#include "engine/comm/cuda/nccl_communicator.h"
#include "engine/device/cuda/check.h"
#include "engine/device/cuda/cuda_device.h"
#include "engine/device/cuda/stream.h"

namespace trimtab {
namespace {

const CudaDevice& Cuda(const Device& device) { return static_cast<const CudaDevice&>(device); }

class EventMark final : public StreamMark {
 public:
  explicit EventMark(Device& device) : device_(Cuda(device)) {}

  void Set() override { event_.Record(device_.Activate()); }
  void Await(Device& waiter) const override { WaitForEvent(Cuda(waiter).Activate(), event_); }

 private:
  const CudaDevice& device_;
  CudaEvent event_;
};

std::unique_ptr<StreamMark> MakeMark(Device& device) {
  Cuda(device).Activate();  // events belong to the current GPU
  return std::make_unique<EventMark>(device);
}

void Connect(Device& reader, Device& owner) {
  const int from = Cuda(reader).ordinal();
  const int to = Cuda(owner).ordinal();
  if (from == to) return;
  int possible = 0;
  TRIMTAB_CUDA_CHECK(cudaDeviceCanAccessPeer(&possible, from, to));
  if (possible == 0) {
    throw EnvironmentError(
        fmt::format("GPU {} cannot reach the memory of GPU {}, which ranks of one process on "
                    "several GPUs need; start the ranks with mpirun",
                    from, to));
  }
  Cuda(reader).Activate();
  const cudaError_t status = cudaDeviceEnablePeerAccess(to, 0);
  if (status == cudaErrorPeerAccessAlreadyEnabled) {
    cudaGetLastError();  // or the next check would report it
    return;
  }
  TRIMTAB_CUDA_CHECK(status);
}

}  // namespace

const CudaComm& CudaCommTable() {
  static constexpr CudaComm kTable = {
      .make_mark = MakeMark,
      .connect = Connect,
      .copy = CopyOnDevice,
      .reduce = ReduceOnDevice,
      .make_nccl_id = MakeNcclId,
      .make_nccl = MakeNcclCommunicator,
  };
  return kTable;
}

}  // namespace trimtab
