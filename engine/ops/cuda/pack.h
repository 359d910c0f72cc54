// Loads and stores of several neighbouring elements at once: 16 bytes per access keep the memory
// busiest.
#pragma once

#include <cstdint>
#include <cstring>

#include "engine/ops/cuda/types.h"

namespace trimtab {

/// Elements of 16 bytes.
template <typename T>
inline constexpr int kPackSize = 16 / static_cast<int>(sizeof(T));

/// N neighbours, a whole number of 16-byte words or one word of 8, 4, 2 or 1 bytes.
template <typename T, int N>
struct alignas(N * sizeof(T) < 16 ? N * sizeof(T) : 16) Pack {
  static constexpr int kSize = N;
  T values[N];

  TRIMTAB_HOST_DEVICE T& operator[](int i) { return values[i]; }
  TRIMTAB_HOST_DEVICE const T& operator[](int i) const { return values[i]; }
};

/// Whether packs of up to 16 bytes may be loaded and stored at `pointer`, for the host's choice
/// between a kernel over packs and one over single elements.
inline bool IsAligned(const void* pointer, int64_t bytes = 16) {
  return reinterpret_cast<uintptr_t>(pointer) % static_cast<uintptr_t>(bytes) == 0;
}

/// Several pointers at once, and a row length in elements of T that keeps every row aligned.
template <typename T, typename... Pointers>
bool RowsAligned(int64_t columns, Pointers... pointers) {
  return columns % kPackSize<T> == 0 && (IsAligned(pointers) && ...);
}

namespace pack_internal {

// The word that one access moves.
template <int kBytes>
struct WordOf;
template <>
struct WordOf<16> {
  using Type = uint4;
};
template <>
struct WordOf<8> {
  using Type = uint2;
};
template <>
struct WordOf<4> {
  using Type = uint32_t;
};
template <>
struct WordOf<2> {
  using Type = uint16_t;
};
template <>
struct WordOf<1> {
  using Type = uint8_t;
};

}  // namespace pack_internal

/// `source` must be aligned to the pack (16 bytes at most).
template <int N, typename T>
__device__ __forceinline__ Pack<T, N> LoadPack(const T* source) {
  using P = Pack<T, N>;
  using Word = typename pack_internal::WordOf<static_cast<int>(alignof(P))>::Type;
  EmulationCheckAligned(source, alignof(P));
  constexpr int kWords = static_cast<int>(sizeof(P) / sizeof(Word));
  Word words[kWords];
#pragma unroll
  for (int i = 0; i < kWords; ++i) words[i] = reinterpret_cast<const Word*>(source)[i];
  P pack;
  memcpy(&pack, words, sizeof(P));
  return pack;
}

template <typename T, int N>
__device__ __forceinline__ void StorePack(T* destination, const Pack<T, N>& pack) {
  using P = Pack<T, N>;
  using Word = typename pack_internal::WordOf<static_cast<int>(alignof(P))>::Type;
  EmulationCheckAligned(destination, alignof(P));
  constexpr int kWords = static_cast<int>(sizeof(P) / sizeof(Word));
#ifdef __CUDA_ARCH__
  // As integers: nvcc takes vectors apart and does not always put their stores together again.
  if constexpr (sizeof(Word) == 16) {
    uint64_t halves[2 * kWords];
    memcpy(halves, &pack, sizeof(P));
#pragma unroll
    for (int i = 0; i < kWords; ++i) {
      reinterpret_cast<unsigned __int128*>(destination)[i] =
          static_cast<unsigned __int128>(halves[2 * i + 1]) << 64 | halves[2 * i];
    }
    return;
  } else if constexpr (sizeof(Word) == 8) {
    uint64_t word;
    memcpy(&word, &pack, sizeof(P));
    *reinterpret_cast<uint64_t*>(destination) = word;
    return;
  }
#endif
  Word words[kWords];
  memcpy(words, &pack, sizeof(P));
#pragma unroll
  for (int i = 0; i < kWords; ++i) reinterpret_cast<Word*>(destination)[i] = words[i];
}

/// N stored elements as fp32.
template <int N, typename T>
__device__ __forceinline__ void LoadFloats(const T* source, float (&values)[N]) {
  const Pack<T, N> pack = LoadPack<N>(source);
#pragma unroll
  for (int i = 0; i < N; ++i) values[i] = ToFloat(pack[i]);
}

/// N fp32 values, rounded to T.
template <typename T, int N>
__device__ __forceinline__ Pack<T, N> PackOf(const float (&values)[N]) {
  Pack<T, N> pack;
  if constexpr (sizeof(T) == 1 && N % 4 == 0) {
#pragma unroll
    for (int i = 0; i < N; i += 4) {
      const float four[4] = {values[i], values[i + 1], values[i + 2], values[i + 3]};
      const uint32_t codes = FourCodes<T>(four);
      memcpy(&pack.values[i], &codes, sizeof(codes));
    }
  } else {
#pragma unroll
    for (int i = 0; i + 1 < N; i += 2) {
      T pair[2];
      FromFloats(values[i], values[i + 1], pair);
      pack[i] = pair[0];
      pack[i + 1] = pair[1];
    }
    if constexpr (N % 2 == 1) pack[N - 1] = FromFloat<T>(values[N - 1]);
  }
  return pack;
}

/// Rounds N fp32 values to T and stores them.
template <typename T, int N>
__device__ __forceinline__ void StoreFloats(T* destination, const float (&values)[N]) {
  StorePack(destination, PackOf<T>(values));
}

}  // namespace trimtab
