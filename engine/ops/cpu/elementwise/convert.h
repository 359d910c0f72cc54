// Storage types to and from fp32 on the cpu. Widening is exact; rounding is to nearest even, for
// fp8 saturated (engine/base/float8.h).
#pragma once

#include <cstdint>

#include "engine/base/dtype.h"

namespace trimtab {

/// Whether the functions below know the type: fp32, bf16, fp16 and both of fp8.

/// One span, on the calling thread: for kernels that go by blocks.
void WidenSpan(DType dtype, int64_t n, const void* source, float* destination);
void RoundSpan(DType dtype, int64_t n, const float* source, void* destination);

/// x *= factor, likewise.
void ScaleSpan(int64_t n, float factor, float* x);

/// As the spans, split over workers.
void WidenCpu(int threads, DType dtype, int64_t n, const void* source, float* destination);
void RoundCpu(int threads, DType dtype, int64_t n, const float* source, void* destination);
void ScaleCpu(int threads, int64_t n, float factor, float* x);

/// destination [n] = source [n], converted through fp32. The two may be the same memory if the
/// types are the same.
void ConvertCpu(int threads, int64_t n, DType from, const void* source, DType to,
                void* destination);

/// Address of element `index` of an array of `dtype`.
inline const void* ElementAt(DType dtype, const void* data, int64_t index) {
  return static_cast<const char*>(data) + index * SizeOf(dtype);
}
inline void* ElementAt(DType dtype, void* data, int64_t index) {
  return static_cast<char*>(data) + index * SizeOf(dtype);
}

/// Elements that a kernel widens at a time when it keeps them on its stack: they stay in the first
/// level of cache. A multiple of kMomentBlock.
inline constexpr int64_t kConvertBlock = 1024;

}  // namespace trimtab
