#include "engine/device/cuda/loader.h"

#include <dlfcn.h>

#include "engine/base/error.h"
#include "engine/base/io/backend_file.h"
#include "engine/device/cuda/backend.h"

namespace trimtab {
namespace {

struct Loaded {
  const CudaBackend* backend = nullptr;
  CudaAvailability availability;
};

Loaded Failed(const std::string& reason) { return {nullptr, {0, reason}}; }

Loaded Load() {
  const BackendFile file = FindBackendFile("cuda");
  if (file.path.empty()) {
    return Failed(
        !file.chosen.empty()
            ? fmt::format("no CUDA backend at {}", file.chosen)
            : "this build has no CUDA backend (made where there was no CUDA toolkit or no GPU)");
  }
  // Never closed: devices and tensors made by the backend may outlive any owner of the handle.
  void* library = dlopen(file.path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return Failed(fmt::format("cannot load the CUDA backend: {}", dlerror()));
  const auto entry = reinterpret_cast<CudaEntryPoint>(dlsym(library, kCudaEntryPoint));
  if (entry == nullptr) return Failed(fmt::format("not a CUDA backend: {}", file.path));
  const CudaBackend* backend = entry();
  return {backend, backend->find_devices()};
}

const Loaded& GetLoaded() {
  static const Loaded loaded = Load();
  return loaded;
}

}  // namespace

const CudaAvailability& FindCudaDevices() { return GetLoaded().availability; }

std::unique_ptr<Device> MakeCudaDevice(const CudaDeviceOptions& options) {
  const Loaded& loaded = GetLoaded();
  const int ordinal = options.ordinal;
  const int count = loaded.availability.device_count;
  if (count == 0) {
    throw EnvironmentError(fmt::format("no CUDA device: {}", loaded.availability.reason));
  }
  if (ordinal < 0 || ordinal >= count) {
    throw EnvironmentError(
        fmt::format("no CUDA device {}: this machine has devices 0 to {}", ordinal, count - 1));
  }
  return loaded.backend->make_device(options);
}

std::unique_ptr<Device> MakeCudaDevice(int ordinal, bool deterministic) {
  const char* nvtx = std::getenv("TRIMTAB_NVTX");
  return MakeCudaDevice({.ordinal = ordinal,
                         .deterministic = deterministic,
                         .nvtx = nvtx != nullptr && *nvtx != '\0'});
}

void WatchDevice(Device& device, std::unique_ptr<WaitWatch> watch) {
  const CudaBackend* backend = GetLoaded().backend;
  TRIMTAB_ASSERT(backend != nullptr, "a device is watched, but there is no CUDA backend");
  backend->watch_device(device, std::move(watch));
}

PowerSampler::Opened OpenPowerSampler(int ordinal) {
  const Loaded& loaded = GetLoaded();
  const int count = loaded.availability.device_count;
  if (ordinal < 0 || ordinal >= count) {
    return {.reason = count == 0 ? loaded.availability.reason
                                 : fmt::format("there is no CUDA device {}", ordinal)};
  }
  return PowerSampler::Open(loaded.backend->pci_bus_id(ordinal));
}

}  // namespace trimtab
