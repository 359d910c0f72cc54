// CPU kernels of quantize.h.
#pragma once

#include <cstdint>

#include "engine/base/dtype.h"

namespace trimtab {

/// The largest |x|; infinity if x holds NaN or infinity, 0 if it is empty.
float AmaxCpu(int threads, int64_t n, DType dtype, const void* x);

/// Stores x [rows, columns] of type `from` times `scale` as `to`, in fp8: as it is and transposed,
/// each where not null. The transposed rows are `stride` apart, with zeros between them.
void QuantizeCpu(int threads, int64_t rows, int64_t columns, float scale, DType from, const void* x,
                 DType to, void* stored, void* transposed, int64_t stride);

}  // namespace trimtab
