// The three instructions that matrix kernels need and CUDA C++ has no words for: products of small
// matrices on the tensor cores (mma), loads of their operands from shared memory (ldmatrix), and
// copies to shared memory that run in the background (cp.async). sm_80 and later; PTX ISA 8,
// "Matrix multiply-accumulate" and "cp.async".
//
// On the host each is emulated over the lanes of the warp, from the same fragment layouts.
#pragma once

#include "engine/ops/cuda/kernel.h"

namespace trimtab {

// Fragments of one warp; lane l holds, with g = l / 4 and t = l % 4, pairs of neighbours:
//   A [16 x 16]: (g, 2t), (g + 8, 2t), (g, 2t + 8), (g + 8, 2t + 8)        row, column of the pair
//   B [16 x 8]:  (2t, g), (2t + 8, g)                    pair of rows: (2t, g) with (2t + 1, g)
//   C [16 x 8]:  (g, 2t), (g, 2t + 1), (g + 8, 2t), (g + 8, 2t + 1)                  one by one
using FragmentA = uint32_t[4];
using FragmentC = float[4];

/// Rounds two neighbours to T, the first in the low half.
template <typename T>
__device__ __forceinline__ uint32_t PackPair(float first, float second) {
  T pair[2];
  FromFloats(first, second, pair);
  return static_cast<uint32_t>(pair[0].bits) | static_cast<uint32_t>(pair[1].bits) << 16;
}

#ifdef __CUDACC__

/// 2^x to 2 units in the last place.
__device__ __forceinline__ float Exp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

/// c += a b, accumulated in fp32. T is Bf16 or F16. All lanes of the warp call it.
template <typename T>
__device__ __forceinline__ void MultiplyAdd(FragmentC& c, const FragmentA& a, uint32_t b0,
                                            uint32_t b1) {
  if constexpr (std::is_same_v<T, Bf16>) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
        "{%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  } else {
    static_assert(std::is_same_v<T, F16>);
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
        "{%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  }
}

/// Loads four 8 x 8 matrices of 16-bit elements: lanes 8i .. 8i + 7 pass the addresses of the rows
/// of matrix i, in shared memory and aligned to 16 bytes. out[i] of lane l is the pair at row l /
/// 4, columns 2 (l % 4) and the next; transposed: rows 2 (l % 4) and the next, column l / 4.
template <bool kTransposed>
__device__ __forceinline__ void LoadMatrices(const void* row, uint32_t (&out)[4]) {
  const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(row));
  if constexpr (kTransposed) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
                 : "r"(address)
                 : "memory");
  } else {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
                 : "r"(address)
                 : "memory");
  }
}

/// Begins to copy kBytes (4, 8 or 16, both sides so aligned) to shared memory; zeros where `valid`
/// is false, when `global` is not read.
template <int kBytes>
__device__ __forceinline__ void CopyAsync(void* shared, const void* global, bool valid) {
  const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(shared));
  const int bytes = valid ? kBytes : 0;
  if constexpr (kBytes == 16) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(address), "l"(global),
                 "r"(bytes)
                 : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(address), "l"(global),
                 "n"(kBytes), "r"(bytes)
                 : "memory");
  }
}

/// Ends a group of this thread's copies.
__device__ __forceinline__ void CommitCopies() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}

/// Waits until at most the last kPending groups of this thread are under way. Other threads see
/// what was copied after a barrier.
template <int kPending>
__device__ __forceinline__ void WaitCopies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

#else

inline float Exp2(float x) { return std::exp2(x); }

namespace emulation {

struct MmaArgument {
  float* c;
  const uint32_t* a;
  uint32_t b[2];
};

template <typename T>
void CombineMma(void* const* arguments, unsigned) {
  const auto half = [](uint32_t pair, int i) {
    return ToFloat(T{static_cast<uint16_t>(pair >> (16 * i))});
  };
  float a[16][16];
  float b[16][8];
  for (int lane = 0; lane < 32; ++lane) {
    const auto& own = *static_cast<const MmaArgument*>(arguments[lane]);
    const int g = lane / 4;
    const int t = lane % 4;
    for (int i = 0; i < 2; ++i) {
      for (int part = 0; part < 4; ++part)
        a[g + part % 2 * 8][2 * t + part / 2 * 8 + i] = half(own.a[part], i);
      for (int part = 0; part < 2; ++part) b[2 * t + part * 8 + i][g] = half(own.b[part], i);
    }
  }
  for (int lane = 0; lane < 32; ++lane) {
    const auto& own = *static_cast<const MmaArgument*>(arguments[lane]);
    for (int i = 0; i < 4; ++i) {
      const int row = lane / 4 + i / 2 * 8;
      const int column = lane % 4 * 2 + i % 2;
      for (int k = 0; k < 16; ++k) own.c[i] += a[row][k] * b[k][column];
    }
  }
}

struct LoadMatricesArgument {
  const void* row;
  uint32_t* out;
};

template <bool kTransposed>
void CombineLoadMatrices(void* const* arguments, unsigned) {
  const auto element = [&](int matrix, int row, int column) {
    const auto& owner = *static_cast<const LoadMatricesArgument*>(arguments[matrix * 8 + row]);
    return static_cast<const uint16_t*>(owner.row)[column];
  };
  for (int lane = 0; lane < 32; ++lane) {
    const auto& own = *static_cast<const LoadMatricesArgument*>(arguments[lane]);
    const int g = lane / 4;
    const int t = lane % 4;
    for (int i = 0; i < 4; ++i) {
      const uint32_t low = kTransposed ? element(i, 2 * t, g) : element(i, g, 2 * t);
      const uint32_t high = kTransposed ? element(i, 2 * t + 1, g) : element(i, g, 2 * t + 1);
      own.out[i] = low | high << 16;
    }
  }
}

// Copies happen at once in some blocks, and in others as late as the waits allow: a kernel that
// overwrites what is still being read fails in the ones, one that waits too little in the others.
inline bool CopiesAreLate() { return (blockIdx.x + blockIdx.y + blockIdx.z) % 2 == 0; }

struct PendingCopy {
  void* shared;
  const void* global;
  size_t bytes;
  bool valid;

  void Run() const {
    if (valid) {
      memcpy(shared, global, bytes);
    } else {
      memset(shared, 0, bytes);
    }
  }
};
inline thread_local std::vector<std::vector<std::vector<PendingCopy> > > pending_copies;

// The groups of the running thread; the last one is not committed yet.
inline std::vector<std::vector<PendingCopy> >& PendingCopies() {
  if (pending_copies.size() < blockDim.x) pending_copies.resize(blockDim.x);
  auto& groups = pending_copies[threadIdx.x];
  if (groups.empty()) groups.emplace_back();
  return groups;
}

}  // namespace emulation

template <typename T>
void MultiplyAdd(FragmentC& c, const FragmentA& a, uint32_t b0, uint32_t b1) {
  emulation::MmaArgument argument{c, a, {b0, b1}};
  emulation::Collective(kWholeWarp, &argument, emulation::CombineMma<T>);
}

template <bool kTransposed>
void LoadMatrices(const void* row, uint32_t (&out)[4]) {
  EmulationCheckAligned(row, 16);
  emulation::LoadMatricesArgument argument{row, out};
  emulation::Collective(kWholeWarp, &argument, emulation::CombineLoadMatrices<kTransposed>);
}

template <int kBytes>
void CopyAsync(void* shared, const void* global, bool valid) {
  EmulationCheckAligned(shared, kBytes);
  EmulationCheckAligned(global, kBytes);
  const emulation::PendingCopy copy{shared, global, size_t{kBytes}, valid};
  if (emulation::CopiesAreLate()) {
    emulation::PendingCopies().back().push_back(copy);
  } else {
    copy.Run();
  }
}

inline void CommitCopies() { emulation::PendingCopies().emplace_back(); }

template <int kPending>
void WaitCopies() {
  auto& groups = emulation::PendingCopies();
  while (static_cast<int>(groups.size()) - 1 > kPending) {
    for (const emulation::PendingCopy& copy : groups.front()) copy.Run();
    groups.erase(groups.begin());
  }
}

#endif

}  // namespace trimtab
