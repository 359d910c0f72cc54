#include "engine/ops/cpu/elementwise/convert.h"

#include <algorithm>
#include <cstring>

#include "engine/base/error.h"
#include "engine/base/float16.h"
#include "engine/base/float8.h"
#include "engine/device/cpu/parallel.h"
#include "engine/ops/kernel.h"

namespace trimtab {
namespace {

TRIMTAB_CLONES void WidenBf16(int64_t n, const uint16_t* source, float* destination) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) destination[i] = Bf16ToFloat(source[i]);
}
TRIMTAB_CLONES void WidenF16(int64_t n, const uint16_t* source, float* destination) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) destination[i] = F16ToFloat(source[i]);
}
TRIMTAB_CLONES void WidenE4M3(int64_t n, const uint8_t* source, float* destination) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) destination[i] = E4M3ToFloat(source[i]);
}
TRIMTAB_CLONES void WidenE5M2(int64_t n, const uint8_t* source, float* destination) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) destination[i] = E5M2ToFloat(source[i]);
}

TRIMTAB_CLONES void RoundBf16(int64_t n, const float* source, uint16_t* destination) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) destination[i] = FloatToBf16(source[i]);
}
TRIMTAB_CLONES void RoundF16(int64_t n, const float* source, uint16_t* destination) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) destination[i] = FloatToF16(source[i]);
}
TRIMTAB_CLONES void RoundE4M3(int64_t n, const float* source, uint8_t* destination) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) destination[i] = FloatToE4M3(source[i]);
}
TRIMTAB_CLONES void RoundE5M2(int64_t n, const float* source, uint8_t* destination) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) destination[i] = FloatToE5M2(source[i]);
}

}  // namespace

TRIMTAB_CLONES void ScaleSpan(int64_t n, float factor, float* x) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) x[i] *= factor;
}

void WidenSpan(DType dtype, int64_t n, const void* source, float* destination) {
  const auto* bits16 = static_cast<const uint16_t*>(source);
  const auto* bits8 = static_cast<const uint8_t*>(source);
  switch (dtype) {
    case DType::kF32:
      std::memmove(destination, source, static_cast<size_t>(n) * sizeof(float));
      return;
    case DType::kBf16:
      return WidenBf16(n, bits16, destination);
    case DType::kF16:
      return WidenF16(n, bits16, destination);
    case DType::kF8E4M3:
      return WidenE4M3(n, bits8, destination);
    case DType::kF8E5M2:
      return WidenE5M2(n, bits8, destination);
    default:
      TRIMTAB_ASSERT(false, "{} values are no floating point", Name(dtype));
  }
}

void RoundSpan(DType dtype, int64_t n, const float* source, void* destination) {
  auto* bits16 = static_cast<uint16_t*>(destination);
  auto* bits8 = static_cast<uint8_t*>(destination);
  switch (dtype) {
    case DType::kF32:
      std::memmove(destination, source, static_cast<size_t>(n) * sizeof(float));
      return;
    case DType::kBf16:
      return RoundBf16(n, source, bits16);
    case DType::kF16:
      return RoundF16(n, source, bits16);
    case DType::kF8E4M3:
      return RoundE4M3(n, source, bits8);
    case DType::kF8E5M2:
      return RoundE5M2(n, source, bits8);
    default:
      TRIMTAB_ASSERT(false, "{} values are no floating point", Name(dtype));
  }
}

void WidenCpu(int threads, DType dtype, int64_t n, const void* source, float* destination) {
  ParallelFor(threads, n, kSpanGrain, [=](int64_t begin, int64_t end) {
    WidenSpan(dtype, end - begin, ElementAt(dtype, source, begin), destination + begin);
  });
}

void RoundCpu(int threads, DType dtype, int64_t n, const float* source, void* destination) {
  ParallelFor(threads, n, kSpanGrain, [=](int64_t begin, int64_t end) {
    RoundSpan(dtype, end - begin, source + begin, ElementAt(dtype, destination, begin));
  });
}

void ScaleCpu(int threads, int64_t n, float factor, float* x) {
  ParallelFor(threads, n, kSpanGrain,
              [=](int64_t begin, int64_t end) { ScaleSpan(end - begin, factor, x + begin); });
}

void ConvertCpu(int threads, int64_t n, DType from, const void* source, DType to,
                void* destination) {
  ParallelFor(threads, n, kSpanGrain, [=](int64_t begin, int64_t end) {
    if (from == to) {
      std::memmove(ElementAt(to, destination, begin), ElementAt(from, source, begin),
                   static_cast<size_t>((end - begin) * SizeOf(to)));
      return;
    }
    float block[kConvertBlock];
    for (int64_t i = begin; i < end; i += kConvertBlock) {
      const int64_t n_block = std::min(kConvertBlock, end - i);
      WidenSpan(from, n_block, ElementAt(from, source, i), block);
      RoundSpan(to, n_block, block, ElementAt(to, destination, i));
    }
  });
}

}  // namespace trimtab
