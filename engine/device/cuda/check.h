// Failed calls of the CUDA libraries become exceptions that say which call, where, and why.
#pragma once

#include <cublasLt.h>
#include <cuda_runtime.h>

namespace trimtab {

/// Throws OutOfMemoryError or EnvironmentError. `call` is the source text of the call.
[[noreturn]] void ThrowCudaError(cudaError_t status, const char* call, const char* file, int line);
[[noreturn]] void ThrowCudaError(cublasStatus_t status, const char* call, const char* file,
                                 int line);

inline bool CudaSucceeded(cudaError_t status) { return status == cudaSuccess; }
inline bool CudaSucceeded(cublasStatus_t status) { return status == CUBLAS_STATUS_SUCCESS; }

}  // namespace trimtab

/// For every call that returns a status of the CUDA runtime or of cuBLASLt.
#define TRIMTAB_CUDA_CHECK(...)                                                    \
  do {                                                                             \
    const auto trimtab_status = (__VA_ARGS__);                                     \
    if (!::trimtab::CudaSucceeded(trimtab_status)) [[unlikely]] {                  \
      ::trimtab::ThrowCudaError(trimtab_status, #__VA_ARGS__, __FILE__, __LINE__); \
    }                                                                              \
  } while (false)
