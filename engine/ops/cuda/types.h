// Storage types of kernels: raw bits, to and from float. Arithmetic is always fp32.
#pragma once

#include <cstdint>
#include <type_traits>

#include "engine/base/dtype.h"
#include "engine/base/error.h"
#include "engine/base/float16.h"
#include "engine/ops/math.h"

#ifdef TRIMTAB_CUDA_EMULATION
#include "engine/base/float8.h"
#include "engine/device/cuda/emulation/cuda_emulation.h"
#elif defined(__CUDACC__)
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <cuda_runtime.h>
#else
#error "kernels are compiled by nvcc or for the emulation"
#endif

namespace trimtab {

#ifdef __CUDACC__
/// On a GPU a misaligned access is the hardware's to refuse.
__device__ __forceinline__ void EmulationCheckAligned(const void*, size_t) {}
#endif

struct Bf16 {
  uint16_t bits;
};
struct F16 {
  uint16_t bits;
};
struct E4M3 {
  uint8_t bits;
};
struct E5M2 {
  uint8_t bits;
};

TRIMTAB_HOST_DEVICE float ToFloat(float value) { return value; }

TRIMTAB_HOST_DEVICE float ToFloat(Bf16 value) {
  return std::bit_cast<float>(static_cast<uint32_t>(value.bits) << 16);
}

TRIMTAB_HOST_DEVICE float ToFloat(F16 value) {
#ifdef __CUDACC__
  return __half2float(__half(__half_raw{value.bits}));
#else
  return F16ToFloat(value.bits);
#endif
}

TRIMTAB_HOST_DEVICE float ToFloat(E4M3 value) {
#ifdef __CUDACC__
  return __half2float(__half(__nv_cvt_fp8_to_halfraw(value.bits, __NV_E4M3)));
#else
  return E4M3ToFloat(value.bits);
#endif
}

TRIMTAB_HOST_DEVICE float ToFloat(E5M2 value) {
#ifdef __CUDACC__
  return __half2float(__half(__nv_cvt_fp8_to_halfraw(value.bits, __NV_E5M2)));
#else
  return E5M2ToFloat(value.bits);
#endif
}

/// Rounds to nearest, ties to even; fp8 saturates at its largest value, NaN stays NaN.
template <typename T>
TRIMTAB_HOST_DEVICE T FromFloat(float value) {
  if constexpr (std::is_same_v<T, float>) {
    return value;
#ifdef __CUDACC__
  } else if constexpr (std::is_same_v<T, Bf16>) {
    return {static_cast<__nv_bfloat16_raw>(__float2bfloat16_rn(value)).x};
  } else if constexpr (std::is_same_v<T, F16>) {
    return {static_cast<__half_raw>(__float2half_rn(value)).x};
  } else if constexpr (std::is_same_v<T, E4M3>) {
    return {__nv_cvt_float_to_fp8(value, __NV_SATFINITE, __NV_E4M3)};
  } else {
    static_assert(std::is_same_v<T, E5M2>);
    return {__nv_cvt_float_to_fp8(value, __NV_SATFINITE, __NV_E5M2)};
  }
#else
  } else if constexpr (std::is_same_v<T, Bf16>) {
    return {FloatToBf16(value)};
  } else if constexpr (std::is_same_v<T, F16>) {
    return {FloatToF16(value)};
  } else if constexpr (std::is_same_v<T, E4M3>) {
    return {FloatToE4M3(value)};
  } else {
    static_assert(std::is_same_v<T, E5M2>);
    return {FloatToE5M2(value)};
  }
#endif
}

/// Two at once: one instruction on a GPU where there is one.
template <typename T>
TRIMTAB_HOST_DEVICE void FromFloats(float first, float second, T (&out)[2]) {
#ifdef __CUDACC__
  if constexpr (std::is_same_v<T, Bf16>) {
    const auto pair = static_cast<__nv_bfloat162_raw>(__floats2bfloat162_rn(first, second));
    out[0] = {pair.x};
    out[1] = {pair.y};
    return;
  } else if constexpr (std::is_same_v<T, F16>) {
    const auto pair = static_cast<__half2_raw>(__floats2half2_rn(first, second));
    out[0] = {pair.x};
    out[1] = {pair.y};
    return;
  }
#endif
  out[0] = FromFloat<T>(first);
  out[1] = FromFloat<T>(second);
}

/// Four fp8 codes, the first in the lowest byte. One piece of assembly: where the two pairs of
/// codes are variables, ptxas 13.0 may write the joined word over a pair that is still to be read.
template <typename F8>
TRIMTAB_HOST_DEVICE uint32_t FourCodes(const float (&values)[4]) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
  uint32_t codes;
  if constexpr (std::is_same_v<F8, E4M3>) {
    asm("{.reg .b16 low, high;\n"
        "cvt.rn.satfinite.e4m3x2.f32 low, %2, %1;\n"
        "cvt.rn.satfinite.e4m3x2.f32 high, %4, %3;\n"
        "mov.b32 %0, {low, high};}"
        : "=r"(codes)
        : "f"(values[0]), "f"(values[1]), "f"(values[2]), "f"(values[3]));
  } else {
    static_assert(std::is_same_v<F8, E5M2>);
    asm("{.reg .b16 low, high;\n"
        "cvt.rn.satfinite.e5m2x2.f32 low, %2, %1;\n"
        "cvt.rn.satfinite.e5m2x2.f32 high, %4, %3;\n"
        "mov.b32 %0, {low, high};}"
        : "=r"(codes)
        : "f"(values[0]), "f"(values[1]), "f"(values[2]), "f"(values[3]));
  }
  return codes;
#else
  uint32_t codes = 0;
  for (int i = 3; i >= 0; --i) codes = codes << 8 | FromFloat<F8>(values[i]).bits;
  return codes;
#endif
}

/// Calls `function` with a null pointer of the storage type of a plain float dtype; the type is
/// then `std::remove_pointer_t<decltype(pointer)>`.
template <typename Function>
decltype(auto) DispatchFloat(DType dtype, Function&& function) {
  switch (dtype) {
    case DType::kF32:
      return function(static_cast<float*>(nullptr));
    case DType::kBf16:
      return function(static_cast<Bf16*>(nullptr));
    case DType::kF16:
      return function(static_cast<F16*>(nullptr));
    default:
      break;
  }
  TRIMTAB_ASSERT(false, "no kernel over {}", Name(dtype));
}

/// The same for gradients of weights: fp32 or bf16.
template <typename Function>
decltype(auto) DispatchGradient(DType dtype, Function&& function) {
  if (dtype == DType::kBf16) return function(static_cast<Bf16*>(nullptr));
  TRIMTAB_ASSERT(dtype == DType::kF32, "no gradients in {}", Name(dtype));
  return function(static_cast<float*>(nullptr));
}

/// The same for fp8.
template <typename Function>
decltype(auto) DispatchFp8(DType dtype, Function&& function) {
  if (dtype == DType::kF8E5M2) return function(static_cast<E5M2*>(nullptr));
  TRIMTAB_ASSERT(dtype == DType::kF8E4M3, "no fp8 kernel over {}", Name(dtype));
  return function(static_cast<E4M3*>(nullptr));
}

}  // namespace trimtab
