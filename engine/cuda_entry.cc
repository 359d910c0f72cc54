// The entry point of the CUDA backend, the shared object that programs load on demand.
#include "engine/comm/cuda/nccl_communicator.h"
#include "engine/comm/cuda/table.h"
#include "engine/device/cuda/backend.h"
#include "engine/device/cuda/cuda_device.h"
#include "engine/ops/cuda/elementwise/fill.h"

namespace trimtab {
namespace {

const CudaOps& Kernels() {
  static const CudaOps kernels = [] {
    CudaOps ops;
    FillCudaOps(ops);
    return ops;
  }();
  return kernels;
}

std::unique_ptr<Device> MakeDevice(const CudaDeviceOptions& options) {
  auto device = std::make_unique<CudaDevice>(options);
  device->set_cuda_ops(&Kernels());
  device->set_cuda_comm(&CudaCommTable());
  return device;
}

void SetWatch(Device& device, std::unique_ptr<WaitWatch> watch) {
  static_cast<CudaDevice&>(device).set_watch(WatchNccl(device, std::move(watch)));
}

}  // namespace
}  // namespace trimtab

extern "C" const trimtab::CudaBackend* trimtab_cuda_backend() {
  static constexpr trimtab::CudaBackend kBackend = {
      .find_devices = trimtab::FindDevicesOfDriver,
      .make_device = trimtab::MakeDevice,
      .watch_device = trimtab::SetWatch,
      .pci_bus_id = trimtab::PciBusId,
  };
  return &kBackend;
}
