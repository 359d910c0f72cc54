// Element-wise reductions over the buffers of several ranks, in rank order.
#pragma once

#include <cstdint>
#include <span>

#include "engine/base/dtype.h"
#include "engine/comm/communicator.h"

namespace trimtab {

/// Reduces elements [begin, end) of every buffer of `sources` (rank order) and writes the result to
/// elements [begin + shift, end + shift) of every buffer of `targets`. A target may be a source.
/// Sums of 16-bit floats are accumulated in fp32 and rounded once; integers wrap around; the
/// maximum of a NaN and anything is NaN.
void ReduceRange(DType dtype, ReduceOp op, std::span<const void* const> sources,
                 std::span<void* const> targets, int64_t begin, int64_t end, int64_t shift);

}  // namespace trimtab
