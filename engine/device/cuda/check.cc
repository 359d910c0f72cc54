#include "engine/device/cuda/check.h"

#include "engine/base/error.h"

namespace trimtab {

void ThrowCudaError(cudaError_t status, const char* call, const char* file, int line) {
  const std::string message = fmt::format("{}:{}: {}: {} ({})", file, line, call,
                                          cudaGetErrorString(status), cudaGetErrorName(status));
  // Forgotten here, so that the next check of a kernel launch does not report it again.
  cudaGetLastError();
  if (status == cudaErrorMemoryAllocation) throw OutOfMemoryError(message);
  throw EnvironmentError(message);
}

void ThrowCudaError(cublasStatus_t status, const char* call, const char* file, int line) {
  throw EnvironmentError(
      fmt::format("{}:{}: {}: {}", file, line, call, cublasLtGetStatusString(status)));
}

}  // namespace trimtab
