// The entry point of the CUDA backend, the shared object that programs load on demand.
#include "engine/device/cuda/backend.h"
#include "engine/device/cuda/cuda_device.h"
#include "engine/ops/ops_cuda.h"

extern "C" const trimtab::CudaBackend* trimtab_cuda_backend() {
  static constexpr trimtab::CudaBackend kBackend = {
      .find_devices = trimtab::FindDevicesOfDriver,
      .make_device = [](int ordinal) -> std::unique_ptr<trimtab::Device> {
        return std::make_unique<trimtab::CudaDevice>(ordinal);
      },
  };
  trimtab::FillCudaOps(trimtab::GetCudaOps());
  return &kBackend;
}
