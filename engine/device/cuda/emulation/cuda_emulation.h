// CUDA C++ on the host: enough of the language for the project's kernels to be compiled by a plain
// C++ compiler and run in tests, without a GPU or the toolkit.
//
// The threads of a block are fibers of the calling thread, run one at a time and switched only at
// barriers and at collectives of a warp; blocks run one after another. Atomics are therefore plain
// additions. Block after block the threads take turns in another way (forwards, backwards, in step,
// warps far ahead of others), which shows up a missing barrier as a wrong result. What a GPU leaves
// undefined stops the process with one line: a barrier or a shuffle that not all of its threads
// reach, a shuffle from a lane that takes no part.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "engine/base/error.h"

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __shared__ static thread_local
#define __launch_bounds__(...)
#define __align__(bytes) alignas(bytes)

namespace trimtab {

// CUDA has them without a namespace.
using std::max;
using std::min;

struct dim3 {
  unsigned x;
  unsigned y;
  unsigned z;
  // Implicit, as CUDA's.
  constexpr dim3(unsigned x_size = 1, unsigned y_size = 1, unsigned z_size = 1)
      : x(x_size), y(y_size), z(z_size) {}
};
struct uint3 {
  unsigned x, y, z;
};
struct alignas(8) uint2 {
  unsigned x, y;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
struct alignas(8) int2 {
  int x, y;
};
struct alignas(16) int4 {
  int x, y, z, w;
};
struct alignas(8) float2 {
  float x, y;
};
struct alignas(16) float4 {
  float x, y, z, w;
};
inline float2 make_float2(float x, float y) { return {x, y}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }

// Of the thread that runs.
inline constinit thread_local uint3 threadIdx{};
inline constinit thread_local uint3 blockIdx{};
inline constinit thread_local uint3 blockDim{};
inline constinit thread_local uint3 gridDim{};

namespace emulation {

/// What a stream of the emulated device does with work: run it at once or, while the device
/// captures, write it down.
struct Stream {
  std::vector<std::function<void()>>* recording = nullptr;
};

inline void Submit(Stream* stream, std::function<void()> work) {
  if (stream != nullptr && stream->recording != nullptr) {
    stream->recording->push_back(std::move(work));
  } else {
    work();
  }
}

struct LaunchShape {
  dim3 grid;
  dim3 block;
  size_t shared_bytes = 0;
  const char* file = "";
  int line = 0;
};

/// Shared memory that a block may have: Hopper's.
inline constexpr int64_t kMaxSharedBytes = 227 << 10;

/// Runs `thread` once for every thread of every block, on the calling thread.
void Run(const LaunchShape& shape, const std::function<void()>& thread);

/// Of the running block; filled with NaN patterns before the block starts.
void* DynamicSharedMemory();

/// The running thread waits for all threads of its block.
void Barrier();

/// Combines what the lanes of a warp bring: each passes the address of an argument of its own; the
/// last of the lanes in `mask` to arrive calls `combine` with the addresses of all 32 (null for
/// lanes outside the mask); then all go on. Lanes in `mask` that come with another mask or another
/// `combine`, or not at all, are an error.
using Combine = void (*)(void* const* arguments, unsigned mask);
void Collective(unsigned mask, void* argument, Combine combine);

/// Index in its warp of the running thread.
int Lane();

/// Stops the process, naming the launch, the block and the thread that runs.
[[noreturn]] void Fail(const std::string& what);

template <typename T>
struct ShuffleArgument {
  T value;
  int source;  // lane
  T result;
};

template <typename T>
void CombineShuffle(void* const* arguments, unsigned mask) {
  for (int lane = 0; lane < 32; ++lane) {
    if ((mask >> lane & 1u) == 0) continue;
    auto* own = static_cast<ShuffleArgument<T>*>(arguments[lane]);
    if ((mask >> own->source & 1u) == 0) {
      Fail(fmt::format("lane {} reads lane {}, which takes no part in the shuffle", lane,
                       own->source));
    }
    own->result = static_cast<const ShuffleArgument<T>*>(arguments[own->source])->value;
  }
}

template <typename T>
T Shuffle(unsigned mask, T value, int source) {
  ShuffleArgument<T> argument{value, source, T{}};
  Collective(mask, &argument, CombineShuffle<T>);
  return argument.result;
}

struct BallotArgument {
  bool predicate;
  unsigned result;
};
unsigned Ballot(unsigned mask, bool predicate);

inline void CombineNothing(void* const*, unsigned) {}

}  // namespace emulation

using cudaStream_t = emulation::Stream*;

inline void __syncthreads() { emulation::Barrier(); }
inline void __syncwarp(unsigned mask = 0xffffffffu) {
  emulation::Collective(mask, nullptr, emulation::CombineNothing);
}

// Shuffles: segments of `width` lanes (a power of two) that exchange among themselves.
template <typename T>
T __shfl_sync(unsigned mask, T value, int source, int width = 32) {
  const int base = emulation::Lane() & ~(width - 1);
  return emulation::Shuffle(mask, value, base + (source & (width - 1)));
}
template <typename T>
T __shfl_xor_sync(unsigned mask, T value, int distance, int width = 32) {
  const int lane = emulation::Lane();
  const int source = lane ^ distance;
  // Beyond the segment only lower lanes can be read.
  return emulation::Shuffle(mask, value, source <= (lane | (width - 1)) ? source : lane);
}
template <typename T>
T __shfl_down_sync(unsigned mask, T value, unsigned distance, int width = 32) {
  const int lane = emulation::Lane();
  const int source = lane + static_cast<int>(distance);
  return emulation::Shuffle(mask, value, source <= (lane | (width - 1)) ? source : lane);
}
template <typename T>
T __shfl_up_sync(unsigned mask, T value, unsigned distance, int width = 32) {
  const int lane = emulation::Lane();
  const int source = lane - static_cast<int>(distance);
  return emulation::Shuffle(mask, value, source >= (lane & ~(width - 1)) ? source : lane);
}

inline unsigned __ballot_sync(unsigned mask, bool predicate) {
  return emulation::Ballot(mask, predicate);
}
inline bool __any_sync(unsigned mask, bool predicate) {
  return emulation::Ballot(mask, predicate) != 0;
}
inline bool __all_sync(unsigned mask, bool predicate) {
  return emulation::Ballot(mask, predicate) == mask;
}

// Atomics: threads do not interrupt each other. They return the old value.
template <typename T>
T atomicAdd(T* address, T value) {
  const T old = *address;
  *address = old + value;
  return old;
}
template <typename T>
T atomicMax(T* address, T value) {
  const T old = *address;
  *address = std::max(old, value);
  return old;
}
template <typename T>
T atomicMin(T* address, T value) {
  const T old = *address;
  *address = std::min(old, value);
  return old;
}
template <typename T>
T atomicExch(T* address, T value) {
  const T old = *address;
  *address = value;
  return old;
}
template <typename T>
T atomicCAS(T* address, T expected, T value) {
  const T old = *address;
  if (old == expected) *address = value;
  return old;
}
inline void __threadfence() {}
inline void __threadfence_block() {}

template <typename T>
T __ldg(const T* address) {
  return *address;
}

inline float __uint_as_float(unsigned bits) { return std::bit_cast<float>(bits); }
inline unsigned __float_as_uint(float value) { return std::bit_cast<unsigned>(value); }
inline float __int_as_float(int bits) { return std::bit_cast<float>(bits); }
inline int __float_as_int(float value) { return std::bit_cast<int>(value); }
inline int __popc(unsigned bits) { return std::popcount(bits); }
inline int __clz(int bits) { return std::countl_zero(static_cast<unsigned>(bits)); }
inline int __ffs(int bits) {
  return bits == 0 ? 0 : std::countr_zero(static_cast<unsigned>(bits)) + 1;
}
inline float __expf(float x) { return std::exp(x); }
inline float __logf(float x) { return std::log(x); }
inline float exp2f(float x) { return std::exp2(x); }
inline float rsqrtf(float x) { return 1.0f / std::sqrt(x); }
inline float __frcp_rn(float x) { return 1.0f / x; }
inline float __fdividef(float x, float y) { return x / y; }

/// Stops the process when a pack is not where the hardware could access it.
inline void EmulationCheckAligned(const void* address, size_t bytes) {
  if (reinterpret_cast<uintptr_t>(address) % bytes != 0) {
    emulation::Fail(fmt::format("an access of {} bytes at an address that is not aligned", bytes));
  }
}

}  // namespace trimtab
