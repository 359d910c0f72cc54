// Tiles of fp8 codes, transposed on their way through shared memory.
//
// A block of 256 threads has a tile of 128 columns and 64 * kGroups rows. Thread t holds, of each
// group, 4 rows of 8 columns: rows 4 * (t / 16) and on, columns 8 * (t % 16) and on. It packs the 4
// codes of a column into one word, writes its 8 words, and after a barrier reads 16 codes of one
// column at a time. Both ways are free of bank conflicts: see Slot.
#pragma once

#include <cstring>

#include "engine/ops/cuda/kernel.h"

namespace trimtab {

inline constexpr int kTileThreads = 256;
inline constexpr int kTileColumns = 128;
inline constexpr int kTileRowsPerGroup = 64;
inline constexpr int kTileVector = 8;  // columns of a thread

/// Selects 4 of the 8 bytes of (b, a), a's being the lower: digit i of `selector` says which is
/// byte i of the result.
__device__ __forceinline__ uint32_t PermuteBytes(uint32_t a, uint32_t b, uint32_t selector) {
#ifdef __CUDA_ARCH__
  return __byte_perm(a, b, selector);
#else
  const uint64_t bytes = uint64_t{b} << 32 | a;
  uint32_t result = 0;
  for (unsigned i = 0; i < 4; ++i) {
    const unsigned source = selector >> (4 * i) & 7u;
    result |= static_cast<uint32_t>(bytes >> (8 * source) & 0xffu) << (8 * i);
  }
  return result;
#endif
}

/// Byte i of rows[j] becomes byte j of columns[i].
__device__ __forceinline__ void TransposeBytes(const uint32_t (&rows)[4], uint32_t (&columns)[4]) {
  const uint32_t low01 = PermuteBytes(rows[0], rows[1], 0x5140);
  const uint32_t low23 = PermuteBytes(rows[2], rows[3], 0x5140);
  const uint32_t high01 = PermuteBytes(rows[0], rows[1], 0x7362);
  const uint32_t high23 = PermuteBytes(rows[2], rows[3], 0x7362);
  columns[0] = PermuteBytes(low01, low23, 0x5410);
  columns[1] = PermuteBytes(low01, low23, 0x7632);
  columns[2] = PermuteBytes(high01, high23, 0x5410);
  columns[3] = PermuteBytes(high01, high23, 0x7632);
}

/// The transposed tile in shared memory: per column kWords words of 4 codes.
template <int kGroups>
struct TransposedTile {
  static_assert(kGroups == 1 || kGroups == 2);
  static constexpr int kRows = kTileRowsPerGroup * kGroups;
  static constexpr int kWords = kRows / 4;
  static constexpr int kVectors = kWords / 4;  // of 16 codes, per column

  uint4 words[kTileColumns * kVectors];

  /// Words of a column are permuted by exclusive or with an even number, so 16-byte vectors stay
  /// together, at most with their halves exchanged.
  static __device__ __forceinline__ int Twist(int column) {
    const int eight = column / kTileVector;
    return kGroups == 2 ? 2 * eight : eight & ~1;
  }
  /// First word of a column. With 16 words to a column, neighbouring groups of 8 columns would meet
  /// in the same half of the banks.
  static __device__ __forceinline__ int Slot(int column) {
    const int place = kGroups == 2 ? column : column ^ (column / kTileVector & 1);
    return place * kWords;
  }

  /// Puts `codes` [row][4 columns each] of the calling thread's group.
  __device__ __forceinline__ void Put(int group, const uint32_t (&codes)[4][2]) {
    auto* target = reinterpret_cast<uint32_t*>(words);
    const int column = static_cast<int>(threadIdx.x) % 16 * kTileVector;
    const int word = group * 16 + static_cast<int>(threadIdx.x) / 16;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const uint32_t rows[4] = {codes[0][half], codes[1][half], codes[2][half], codes[3][half]};
      uint32_t columns[4];
      TransposeBytes(rows, columns);
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const int c = column + half * 4 + j;
        target[Slot(c) + (word ^ Twist(c))] = columns[j];
      }
    }
  }

  /// Codes [16 * vector, 16 * vector + 16) of a column.
  __device__ __forceinline__ uint4 Get(int column, int vector) const {
    const int twist = Twist(column);
    const uint4 found = words[Slot(column) / 4 + (vector ^ twist / 4)];
    if ((twist & 2) == 0) return found;
    return uint4{found.z, found.w, found.x, found.y};
  }

  /// Stores the tile whose first element is (first_row, first_column) of a matrix [rows, columns]
  /// into `transposed`, which points at column 0 of it: [columns, rows], `stride` apart, with zeros
  /// between them. After a barrier.
  __device__ __forceinline__ void Store(uint8_t* transposed, int64_t first_row,
                                        int64_t first_column, int64_t rows, int64_t columns,
                                        int64_t stride, bool aligned) const {
    for (int i = static_cast<int>(threadIdx.x); i < kTileColumns * kVectors; i += kTileThreads) {
      const int column = i / kVectors;
      const int64_t row = first_row + i % kVectors * 16;
      if (first_column + column >= columns || row >= rows) continue;
      const uint4 codes = Get(column, i % kVectors);
      uint8_t* target = transposed + (first_column + column) * stride + row;
      if (aligned && row + 16 <= rows) {
        EmulationCheckAligned(target, sizeof(uint4));
        *reinterpret_cast<uint4*>(target) = codes;
        continue;
      }
      uint8_t bytes[16];
      memcpy(bytes, &codes, sizeof(bytes));
      for (int j = 0; j < 16; ++j) {
        if (row + j < stride) target[j] = row + j < rows ? bytes[j] : uint8_t{0};
      }
    }
  }
};

/// The larger of what each thread of the block brings as bits of magnitudes goes to `amax`, NaN as
/// infinity. All threads must call it. The order of blocks does not matter: bits of magnitudes
/// compare as their values do.
__device__ __forceinline__ void RaiseAmax(uint32_t bits, float* amax) {
  constexpr uint32_t kInfinity = 0x7f800000u;
  const auto larger = [](uint32_t a, uint32_t b) { return a < b ? b : a; };
  bits = BlockReduce(bits, larger, 0u);
  if (threadIdx.x == 0) {
    atomicMax(reinterpret_cast<uint32_t*>(amax), bits < kInfinity ? bits : kInfinity);
  }
}

__device__ __forceinline__ uint32_t MagnitudeBits(float value) {
  return std::bit_cast<uint32_t>(value) & 0x7fffffffu;
}

}  // namespace trimtab
