// Messages between ranks whose devices are emulated, for tests.
#pragma once

#include "engine/comm/cuda_comm.h"

namespace trimtab {

/// For EmulatedDevice::set_cuda_comm: the kernels of the CUDA backend. Work is done when it is
/// submitted, so marks have nothing to order. Without NCCL.
const CudaComm& EmulatedCudaComm();

}  // namespace trimtab
