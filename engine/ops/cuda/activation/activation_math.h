// The activation functions as kernels compute them: as in engine/ops/math.h for fp32; for 16-bit
// storage, on a GPU, with the hardware's own exponential and reciprocal. Those err by a few fp32
// roundings, far below one of the storage type, and without them the kernels would be bound by
// arithmetic instead of by memory.
#pragma once

#include "engine/ops/cuda/types.h"

namespace trimtab {

template <typename T>
struct ActivationMath {
  /// 1 / (1 + e^-x).
  static __device__ __forceinline__ float Logistic(float x) {
#ifdef __CUDA_ARCH__
    if constexpr (!std::is_same_v<T, float>) return __fdividef(1.0f, 1.0f + __expf(-x));
#endif
    return Sigmoid(x);
  }

  static __device__ __forceinline__ float Silu(float x) { return x * Logistic(x); }

  static __device__ __forceinline__ float Gelu(float x) {
    if constexpr (std::is_same_v<T, float>) return trimtab::Gelu(x);
    return x * Logistic(1.5957691216057308f * (x + 0.044715f * x * x * x));
  }

  /// 1 - s loses digits where s is close to 1, but there the term it stands in is small beside s.
  static __device__ __forceinline__ float GeluDerivative(float x) {
    if constexpr (std::is_same_v<T, float>) return trimtab::GeluDerivative(x);
    const float square = x * x;
    const float s = Logistic(1.5957691216057308f * (x + 0.044715f * square * x));
    const float two_du = 1.5957691216057308f * (1.0f + 3.0f * 0.044715f * square);
    return s + x * two_du * (s * (1.0f - s));
  }

  template <ActivationFunction kFunction>
  static __device__ __forceinline__ float Value(float x) {
    if constexpr (kFunction == ActivationFunction::kGelu) return Gelu(x);
    if constexpr (kFunction == ActivationFunction::kSilu) return Silu(x);
    return Activate<kFunction>(x);
  }

  template <ActivationFunction kFunction>
  static __device__ __forceinline__ float Derivative(float x) {
    if constexpr (kFunction == ActivationFunction::kGelu) return GeluDerivative(x);
    return ActivateDerivative<kFunction>(x);
  }

  /// The gradients of f(gate) * GateFactor(up), given dy of it.
  template <ActivationFunction kFunction>
  static __device__ __forceinline__ void GatedBackward(float gate, float up, float dy, float& dgate,
                                                       float& dup) {
    if constexpr (kFunction == ActivationFunction::kSilu) {
      SwiGluBackward(gate, up, dy, dgate, dup);
    } else {
      dgate = dy * GateFactor<kFunction>(up) * Derivative<kFunction>(gate);
      dup = dy * GateFactorDerivative<kFunction>(up) * Value<kFunction>(gate);
    }
  }

  /// The same of silu.
  static __device__ __forceinline__ void SwiGluBackward(float gate, float up, float dy,
                                                        float& dgate, float& dup) {
    if constexpr (std::is_same_v<T, float>) {
      dgate = dy * up * SiluDerivative(gate);
      dup = dy * trimtab::Silu(gate);
    } else {
      const float s = Logistic(gate);
      dgate = dy * up * (s + gate * (s * (1.0f - s)));
      dup = dy * (gate * s);
    }
  }
};

}  // namespace trimtab
