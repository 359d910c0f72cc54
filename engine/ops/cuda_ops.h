// The seam to the CUDA backend: a table of kernels that the shared object fills when it is loaded.
//
// Each dispatcher (`gemm.cc`, ...) checks shapes, reports the op, then calls the cpu kernel, or the
// entry here. An entry left null means the op has no CUDA kernel: the dispatcher refuses by name.
#pragma once

#include "engine/ops/gemm.h"

namespace trimtab {

struct CudaOps {
  void (*gemm)(const Tensor& a, Transpose trans_a, const Tensor& b, Transpose trans_b, Tensor& c,
               bool accumulate, const Tensor& bias) = nullptr;
};

/// The table of this process; all null until the CUDA backend is loaded.
CudaOps& GetCudaOps();

/// Throws EnvironmentError "op has no kernel on device": for dispatchers.
[[noreturn]] void ThrowNoKernel(OpKind op, DeviceKind device);

}  // namespace trimtab
