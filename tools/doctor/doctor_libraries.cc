// GPUs, and the libraries that are loaded on demand.
#include <chrono>
#include <fstream>

#include "engine/base/error.h"
#include "engine/base/io/isolated_call.h"
#include "engine/comm/nccl_versions.h"
#include "engine/device/cuda/loader.h"
#include "engine/ops/cuda/cudnn/cudnn_limits.h"
#include "tools/doctor/doctor_checks.h"

namespace trimtab {
namespace {

// Without its persistence daemon, the driver takes seconds to start each GPU.
constexpr std::chrono::seconds kGpuPatience{60};

/// A row; `without` says what it means that the library is absent or broken.
Check Row(const std::string& what, const FoundLibrary& found, const std::string& without) {
  if (found.usable()) {
    return {what, Health::kOk, fmt::format("{} ({})", found.version, found.path), found.version};
  }
  if (found.problem.empty()) return {what, Health::kNote, "not found: " + without};
  return {what, Health::kNote, fmt::format("broken: {}; {}", found.problem, without)};
}

/// "release 580.95.05, ", from the driver's kernel module; empty where it does not say.
std::string DriverRelease() {
  std::ifstream file("/sys/module/nvidia/version");
  std::string release;
  return std::getline(file, release) ? fmt::format("release {}, ", release) : "";
}

Check DriverRow(const FoundLibrary& driver, const FoundLibrary& runtime) {
  Check check = Row("CUDA driver", driver, "GPUs cannot be used");
  if (!driver.usable()) return check;
  check.finding =
      fmt::format("{}for CUDA up to {} ({})", DriverRelease(), driver.version, driver.path);
  // Within a major version an older driver runs a newer runtime (CUDA Compatibility guide).
  if (runtime.usable() && driver.number / 1000 < runtime.number / 1000) {
    check.health = Health::kNote;
    check.finding +=
        fmt::format(", too old for CUDA runtime {}: GPUs cannot be used", runtime.version);
  }
  return check;
}

Check CudnnRow(const FoundLibrary& cudnn) {
  const std::string without = "attention on GPUs uses Trimtab's own kernels";
  Check check = Row("cuDNN", cudnn, without);
  if (cudnn.usable() && cudnn.number < kOldestCudnn) {
    check.health = Health::kNote;
    check.finding += fmt::format(", older than {}: {}", CudnnVersionName(kOldestCudnn), without);
  }
  return check;
}

Check NcclRow(const FoundLibrary& nccl) {
  Check check = Row("NCCL", nccl, "ranks in processes of their own cannot use GPUs");
  if (nccl.usable() && !NcclKeepsLaunchOrder(nccl.number)) {
    check.health = Health::kNote;
    check.finding += ", older than 2.26: no pipeline or context parallelism over GPUs";
  }
  return check;
}

Check MpiRow(const FoundLibrary& mpi) {
  const std::string without = "ranks run as threads only, without mpirun";
  Check check = Row("MPI", mpi, without);
  if (mpi.usable() && !mpi.version.starts_with("Open MPI")) {
    check.health = Health::kNote;
    check.finding += ", not Open MPI: " + without;
  }
  return check;
}

}  // namespace

Check CheckGpus() {
  IsolatedCall call([] {
    const CudaAvailability& gpus = FindCudaDevices();
    return gpus.device_count > 0 ? std::to_string(gpus.device_count) : gpus.reason;
  });
  const auto result = call.Wait(std::chrono::steady_clock::now() + kGpuPatience);
  const std::string none = "none, training runs on the CPU: ";
  if (!result.failure.empty()) {
    return {"GPUs", Health::kNote, none + "the search for them failed, " + result.failure};
  }
  const bool is_count = result.text.find_first_not_of("0123456789") == std::string::npos;
  if (!is_count) return {"GPUs", Health::kNote, none + result.text};
  return {"GPUs", Health::kOk,
          result.text == "1" ? "1 CUDA device" : result.text + " CUDA devices"};
}

std::vector<Check> CheckLibraries(const LibraryVersions& found) {
  return {DriverRow(found.cuda_driver, found.cuda_runtime),
          Row("CUDA runtime", found.cuda_runtime, "GPUs cannot be used"), CudnnRow(found.cudnn),
          NcclRow(found.nccl), MpiRow(found.mpi)};
}

}  // namespace trimtab
