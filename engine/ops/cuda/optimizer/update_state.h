// What kernels of updates share: weights with their masters, and moments in any of their types.
#pragma once

#include <type_traits>

#include "engine/ops/cuda/kernel.h"
#include "engine/ops/optimizer/moment_codes.h"
#include "engine/ops/optimizer/update_state.h"

namespace trimtab {

/// The weight is its own master.
struct NoMaster {};

/// An int8 moment: a MomentCode.
struct Code8 {
  uint8_t bits;
};

template <typename S>
inline constexpr bool kHasCodes = std::is_same_v<S, Code8>;
/// Whether moments of type S have scales.
template <typename S>
inline constexpr bool kHasScales = std::is_same_v<S, F16> || kHasCodes<S>;

/// The numbers that moments of type S stand for, as a kernel is launched with them: none but for
/// Code8.
template <typename S>
struct CodeTable {
  explicit CodeTable(MomentSign) {}
};
template <>
struct CodeTable<Code8> {
  explicit CodeTable(MomentSign sign)
      : codes(sign == MomentSign::kEither ? kSignedMomentCodes : kUnsignedMomentCodes) {}
  MomentCodes codes;
};

// The table in the block's shared memory, one for each kSlot: all threads must call it.
template <int kSlot, typename S>
__device__ __forceinline__ const float* ShareCodes(const CodeTable<S>& table) {
  if constexpr (kHasCodes<S>) {
    __shared__ float shared[kMomentCodes];
    const auto threads = static_cast<int>(blockDim.x);
    for (int i = static_cast<int>(threadIdx.x); i < kMomentCodes; i += threads) {
      shared[i] = table.codes.values[i];
    }
    __syncthreads();
    return shared;
  } else {
    return nullptr;
  }
}

// Elements [i, i + N) of `source`, zeros from n on.
template <int N, typename T>
__device__ __forceinline__ Pack<T, N> Load(const T* source, int64_t i, int64_t n, bool aligned) {
  if (aligned && i + N <= n) return LoadPack<N>(source + i);
  Pack<T, N> pack;
#pragma unroll
  for (int j = 0; j < N; ++j) pack[j] = i + j < n ? source[i + j] : T{};
  return pack;
}

template <int N, typename T>
__device__ __forceinline__ void Store(T* target, int64_t i, int64_t n, bool aligned,
                                      const Pack<T, N>& pack) {
  if (aligned && i + N <= n) return StorePack(target + i, pack);
#pragma unroll
  for (int j = 0; j < N; ++j) {
    if (i + j < n) target[i + j] = pack[j];
  }
}

// A moment without its scale.
template <typename S>
__device__ __forceinline__ float StoredValue(S stored, [[maybe_unused]] const float* codes) {
  if constexpr (kHasCodes<S>) {
    return codes[stored.bits];
  } else {
    return ToFloat(stored);
  }
}

// Rounds moments to S. Scaled ones first get the scale of their block of kMomentBlock, which
// belongs to kMomentBlock / N neighbouring lanes: all of a warp must call it.
template <typename S, int N>
__device__ __forceinline__ Pack<S, N> RoundMoments(float (&values)[N],
                                                   [[maybe_unused]] const float* codes,
                                                   float* scales, int64_t i, int64_t n) {
  if constexpr (kHasScales<S>) {
    constexpr int kLanes = static_cast<int>(kMomentBlock) / N;
    float largest = 0.0f;
#pragma unroll
    for (int j = 0; j < N; ++j) largest = fmaxf(largest, fabsf(values[j]));
#pragma unroll
    for (int distance = kLanes / 2; distance > 0; distance /= 2) {
      largest = fmaxf(largest, __shfl_xor_sync(kWholeWarp, largest, distance));
    }
    float scale = 0.0f;
    float inverse = 0.0f;
    if constexpr (kHasCodes<S>) {
      MomentCodeScale(largest, scale, inverse);
    } else {
      MomentScale(largest, scale, inverse);
    }
    if (static_cast<int>(threadIdx.x) % kLanes == 0 && i < n) scales[i / kMomentBlock] = scale;
#pragma unroll
    for (int j = 0; j < N; ++j) values[j] *= inverse;
  }
  Pack<S, N> pack;
#pragma unroll
  for (int j = 0; j < N; ++j) {
    if constexpr (kHasCodes<S>) {
      pack[j] = {MomentCode(codes, values[j])};
    } else {
      pack[j] = FromFloat<S>(values[j]);
    }
  }
  return pack;
}

/// Calls function(static_cast<S*>(nullptr)) with the storage type of moments in `dtype`.
template <typename Function>
decltype(auto) DispatchMoment(DType dtype, Function&& function) {
  if (dtype == DType::kI8) return function(static_cast<Code8*>(nullptr));
  return DispatchFloat(dtype, function);
}

/// Calls function(W*, M*) with the storage types of a weight and its master.
template <typename Function>
void DispatchMasterWeight(const MasterWeight& weight, Function&& function) {
  switch (weight.weight.dtype()) {
    case DType::kF32:
      return function(static_cast<float*>(nullptr), static_cast<NoMaster*>(nullptr));
    case DType::kF16:
      return function(static_cast<F16*>(nullptr), static_cast<float*>(nullptr));
    default:
      break;
  }
  if (weight.master.dtype() == DType::kU16) {
    function(static_cast<Bf16*>(nullptr), static_cast<uint16_t*>(nullptr));
  } else {
    function(static_cast<Bf16*>(nullptr), static_cast<float*>(nullptr));
  }
}

// The fp32 value of a weight with its master.
template <typename W, typename M>
__device__ __forceinline__ float MasterOf(W weight, M master) {
  if constexpr (std::is_same_v<M, NoMaster>) {
    return ToFloat(weight);
  } else if constexpr (std::is_same_v<M, uint16_t>) {
    return MasterOfParts(weight.bits, master);
  } else {
    return master;
  }
}

template <typename W, typename M>
__device__ __forceinline__ void SetMaster(float value, W& weight, M& master) {
  if constexpr (std::is_same_v<M, uint16_t>) {
    weight = {WeightBitsOfMaster(value)};
    master = RemainderOfMaster(value);
  } else {
    weight = FromFloat<W>(value);
    if constexpr (!std::is_same_v<M, NoMaster>) master = value;
  }
}

}  // namespace trimtab
