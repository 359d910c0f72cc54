// The work of in-process collectives on a cuda device.
#pragma once

#include <cstdint>
#include <span>

#include "engine/comm/communicator.h"

namespace trimtab {

/// ReduceRange (reduce_kernels.h) in the order of `device`'s stream, to the same bits: sums of
/// floats are added in rank order in fp32 and rounded once. All buffers must be reachable from
/// `device`. Throws EnvironmentError past kMaxCudaInprocRanks buffers.
void ReduceOnDevice(Device& device, DType dtype, ReduceOp op, std::span<const void* const> sources,
                    std::span<void* const> targets, int64_t begin, int64_t end, int64_t shift);

/// Copies `bytes` bytes in the order of `device`'s stream.
void CopyOnDevice(Device& device, const void* from, void* to, int64_t bytes);

}  // namespace trimtab
