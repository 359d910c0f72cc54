// The functions of the CUDA backend for messages between ranks.
#pragma once

#include "engine/comm/cuda_comm.h"

namespace trimtab {

/// For every device that the backend makes.
const CudaComm& CudaCommTable();

}  // namespace trimtab
