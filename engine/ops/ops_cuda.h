// The CUDA kernels, as the backend puts them into the table of its devices.
#pragma once

#include "engine/ops/cuda_ops.h"

namespace trimtab {

/// Fills every entry that has a CUDA kernel.
void FillCudaOps(CudaOps& ops);

}  // namespace trimtab
