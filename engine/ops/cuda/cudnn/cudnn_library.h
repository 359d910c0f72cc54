// libcudnn, loaded when attention first asks for it: a program that does not train on a GPU does
// not pay for it, and one on a machine without it still has the project's own kernels.
#pragma once

#include <cudnn_graph.h>

#include <string>

#include "engine/base/error.h"

namespace trimtab {

/// The functions of cuDNN that the project calls.
struct CudnnLibrary {
  decltype(&cudnnGetVersion) get_version = nullptr;
  decltype(&cudnnGetErrorString) get_error_string = nullptr;
  decltype(&cudnnGetLastErrorString) get_last_error_string = nullptr;
  decltype(&cudnnCreate) create = nullptr;
  decltype(&cudnnDestroy) destroy = nullptr;
  decltype(&cudnnSetStream) set_stream = nullptr;
  decltype(&cudnnBackendCreateDescriptor) create_descriptor = nullptr;
  decltype(&cudnnBackendDestroyDescriptor) destroy_descriptor = nullptr;
  decltype(&cudnnBackendSetAttribute) set_attribute = nullptr;
  decltype(&cudnnBackendGetAttribute) get_attribute = nullptr;
  decltype(&cudnnBackendFinalize) finalize = nullptr;
  decltype(&cudnnBackendExecute) execute = nullptr;
};

/// Why cuDNN cannot be used on this machine, in one line; empty when it can. Loads it at the first
/// call; safe from any thread; never throws.
const std::string& CudnnUnavailable();

/// The library. Throws EnvironmentError with CudnnUnavailable() where it is missing.
const CudnnLibrary& Cudnn();

/// A call of cuDNN failed.
struct CudnnError : EnvironmentError {
  CudnnError(cudnnStatus_t failed, const std::string& message)
      : EnvironmentError(message), status(failed) {}
  cudnnStatus_t status;
};

/// `call` is the source text of the call, `purpose` what the descriptor is for.
[[noreturn]] void ThrowCudnnError(cudnnStatus_t status, const std::string& purpose,
                                  const char* call, const char* file, int line);

}  // namespace trimtab

/// For every call of cuDNN that returns a status.
#define TRIMTAB_CUDNN_CHECK(purpose, ...)                                                    \
  do {                                                                                       \
    const cudnnStatus_t trimtab_status = (__VA_ARGS__);                                      \
    if (trimtab_status != CUDNN_STATUS_SUCCESS) [[unlikely]] {                               \
      ::trimtab::ThrowCudnnError(trimtab_status, purpose, #__VA_ARGS__, __FILE__, __LINE__); \
    }                                                                                        \
  } while (false)
