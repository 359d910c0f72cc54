#include "engine/ops/cpu/fp8/quantize.h"

#include <algorithm>
#include <bit>
#include <vector>

#include "engine/base/units.h"
#include "engine/device/cpu/parallel.h"
#include "engine/ops/cpu/elementwise/convert.h"
#include "engine/ops/kernel.h"

namespace trimtab {
namespace {

// Rows that are transposed together: their codes fill a line of cache each.
constexpr int64_t kTile = 64;

// Magnitudes compare as their bits do, and NaN's bits are the largest of all.
TRIMTAB_CLONES uint32_t LargestBits(int64_t n, const float* x) {
  uint32_t largest = 0;
#pragma omp simd reduction(max : largest)
  for (int64_t i = 0; i < n; ++i) {
    const uint32_t magnitude = std::bit_cast<uint32_t>(x[i]) & 0x7fffffffu;
    largest = largest < magnitude ? magnitude : largest;
  }
  return largest;
}

uint32_t LargestBitsOf(int64_t n, DType dtype, const void* x) {
  if (dtype == DType::kF32) return LargestBits(n, static_cast<const float*>(x));
  float block[kConvertBlock];
  uint32_t largest = 0;
  for (int64_t i = 0; i < n; i += kConvertBlock) {
    const int64_t count = std::min(kConvertBlock, n - i);
    WidenSpan(dtype, count, ElementAt(dtype, x, i), block);
    largest = std::max(largest, LargestBits(count, block));
  }
  return largest;
}

/// codes [n] = x [n] * scale in fp8.
void QuantizeSpan(int64_t n, float scale, DType from, const void* x, DType to, uint8_t* codes) {
  float block[kConvertBlock];
  for (int64_t i = 0; i < n; i += kConvertBlock) {
    const int64_t count = std::min(kConvertBlock, n - i);
    WidenSpan(from, count, ElementAt(from, x, i), block);
    ScaleSpan(count, scale, block);
    RoundSpan(to, count, block, codes + i);
  }
}

}  // namespace

float AmaxCpu(int threads, int64_t n, DType dtype, const void* x) {
  const int64_t chunks = CeilDiv(n, kSpanGrain);
  std::vector<uint32_t> largest(static_cast<size_t>(chunks) + 1);
  ParallelFor(threads, chunks, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t start = i * kSpanGrain;
      largest[static_cast<size_t>(i)] =
          LargestBitsOf(std::min(kSpanGrain, n - start), dtype, ElementAt(dtype, x, start));
    }
  });
  constexpr uint32_t kInfinityBits = 0x7f800000u;
  return std::bit_cast<float>(std::min(kInfinityBits, *std::ranges::max_element(largest)));
}

void QuantizeCpu(int threads, int64_t rows, int64_t columns, float scale, DType from, const void* x,
                 DType to, void* stored, void* transposed, int64_t stride) {
  const int64_t tiles = CeilDiv(rows, kTile);
  const int64_t grain = CeilDiv(RowGrain(columns), kTile);
  ParallelFor(threads, tiles, grain, [=](int64_t begin, int64_t end) {
    std::vector<uint8_t> codes(static_cast<size_t>(kTile * columns));
    for (int64_t first = begin * kTile; first < std::min(rows, end * kTile); first += kTile) {
      const int64_t count = std::min(kTile, rows - first);
      QuantizeSpan(count * columns, scale, from, ElementAt(from, x, first * columns), to,
                   codes.data());
      if (stored != nullptr) {
        std::copy_n(codes.data(), count * columns, static_cast<uint8_t*>(stored) + first * columns);
      }
      if (transposed == nullptr) continue;
      for (int64_t j = 0; j < columns; ++j) {
        uint8_t* target = static_cast<uint8_t*>(transposed) + j * stride + first;
        for (int64_t i = 0; i < count; ++i) {
          target[i] = codes[static_cast<size_t>(i * columns + j)];
        }
        if (first + count == rows) std::fill_n(target + count, stride - rows, uint8_t{0});
      }
    }
  });
}

}  // namespace trimtab
