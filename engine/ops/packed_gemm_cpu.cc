#include "engine/ops/packed_gemm_cpu.h"

#include <algorithm>
#include <bit>

#include "engine/base/float16.h"
#include "engine/base/float8.h"
#include "engine/device/cpu/parallel.h"
#include "engine/ops/kernel.h"
#include "engine/ops/ordered_product_cpu.h"

namespace trimtab {
namespace {

// Columns of W that are unpacked, and multiplied, at a time: with the rows that they multiply they
// stay in the first levels of cache. A multiple of kInt4Group.
constexpr int64_t kBlockColumns = 256;
static_assert(kBlockColumns % kInt4Group == 0);

TRIMTAB_CLONES void UnpackBf16(int64_t n, const uint16_t* from, float* to) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) to[i] = Bf16ToFloat(from[i]);
}

TRIMTAB_CLONES void UnpackF16(int64_t n, const uint16_t* from, float* to) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) to[i] = F16ToFloat(from[i]);
}

TRIMTAB_CLONES void UnpackF8(int64_t columns, const uint8_t* from, const float* scales, float* to) {
  for (int64_t c = 0; c < columns; ++c) {
#pragma omp simd
    for (int64_t r = 0; r < kPanelRows; ++r) {
      to[c * kPanelRows + r] = E4M3ToFloat(from[c * kPanelRows + r]) * scales[r];
    }
  }
}

TRIMTAB_CLONES void UnpackInt8(int64_t columns, const int8_t* from, const float* scales,
                               float* to) {
  for (int64_t c = 0; c < columns; ++c) {
#pragma omp simd
    for (int64_t r = 0; r < kPanelRows; ++r) {
      to[c * kPanelRows + r] = static_cast<float>(from[c * kPanelRows + r]) * scales[r];
    }
  }
}

TRIMTAB_CLONES void UnpackInt4(int64_t columns, const uint8_t* from, const float* scales,
                               float* to) {
  constexpr int64_t kHalf = kPanelRows / 2;
  for (int64_t c = 0; c < columns; ++c) {
    const float* scale = scales + c / kInt4Group * kPanelRows;
#pragma omp simd
    for (int64_t r = 0; r < kHalf; ++r) {
      const int32_t pair = from[c * kHalf + r];
      // Moved to the top and back, a half keeps its sign.
      const int32_t low = static_cast<int32_t>(static_cast<uint32_t>(pair) << 28) >> 28;
      const int32_t high = static_cast<int32_t>(static_cast<uint32_t>(pair) << 24) >> 28;
      to[c * kPanelRows + r] = static_cast<float>(low) * scale[r];
      to[c * kPanelRows + kHalf + r] = static_cast<float>(high) * scale[kHalf + r];
    }
  }
}

// The part of y [m, out] that one panel makes.
class PanelProduct {
 public:
  PanelProduct(const PackedMatrix& weights, const float* bias) : weights_(weights), bias_(bias) {}

  void Run(int64_t matrix, int64_t panel, int64_t m, const float* x, float* y) const {
    const int64_t in = weights_.in;
    const int64_t first = panel * kPanelRows;
    const int64_t columns = std::min(kPanelRows, weights_.out - first);
    const MutableRows target = {y + first, weights_.out};
    for (int64_t row = 0; row < m; ++row) {
      float* sums = target.data + row * target.stride;
      if (bias_ != nullptr) {
        std::copy_n(bias_ + first, columns, sums);
      } else {
        std::fill_n(sums, columns, 0.0f);
      }
    }
    const int64_t index = matrix * weights_.panels() + panel;
    const float* scales = weights_.scales.defined()
                              ? weights_.scales.f32() + index * weights_.groups() * kPanelRows
                              : nullptr;
    const int64_t panel_values = weights_.values.dim(2) * weights_.values.dim(3);
    const auto* values = static_cast<const char*>(weights_.values.raw()) +
                         index * panel_values * SizeOf(weights_.values.dtype());
    alignas(64) float block[kBlockColumns * kPanelRows];
    for (int64_t begin = 0; begin < in; begin += kBlockColumns) {
      const int64_t count = std::min(kBlockColumns, in - begin);
      const float* factors = block;
      if (weights_.format == WeightFormat::kF32) {
        factors = reinterpret_cast<const float*>(values) + begin * kPanelRows;
      } else {
        UnpackColumns(weights_.format, values, scales, begin, count, block);
      }
      OrderedProduct(m, columns, count, {x + begin, in}, {factors, kPanelRows}, target);
    }
  }

 private:
  const PackedMatrix& weights_;
  const float* bias_;
};

}  // namespace

void UnpackColumns(WeightFormat format, const void* panel, const float* scales, int64_t first,
                   int64_t columns, float* block) {
  const int64_t skip = first * kPanelRows;
  const int64_t count = columns * kPanelRows;
  switch (format) {
    case WeightFormat::kF32:
      std::copy_n(static_cast<const float*>(panel) + skip, count, block);
      return;
    case WeightFormat::kBf16:
      return UnpackBf16(count, static_cast<const uint16_t*>(panel) + skip, block);
    case WeightFormat::kF16:
      return UnpackF16(count, static_cast<const uint16_t*>(panel) + skip, block);
    case WeightFormat::kF8:
      return UnpackF8(columns, static_cast<const uint8_t*>(panel) + skip, scales, block);
    case WeightFormat::kInt8:
      return UnpackInt8(columns, static_cast<const int8_t*>(panel) + skip, scales, block);
    case WeightFormat::kInt4:
      return UnpackInt4(columns, static_cast<const uint8_t*>(panel) + skip / 2,
                        scales + first / kInt4Group * kPanelRows, block);
  }
}

void PackedGemmCpu(int threads, const PackedMatrix& weights, GroupRows rows, const float* x,
                   const float* bias, float* y) {
  int64_t all = 0;
  for (const int64_t each : rows) all += each;
  const PanelProduct product(weights, bias);
  const int64_t panel_work = std::max<int64_t>(1, weights.in * kPanelRows * all);
  const int64_t grain = std::max<int64_t>(1, kSpanGrain / panel_work);
  ParallelFor(threads, weights.panels(), grain, [&](int64_t begin, int64_t end) {
    int64_t first = 0;
    for (size_t g = 0; g < rows.size(); first += rows[g++]) {
      if (rows[g] == 0) continue;
      for (int64_t panel = begin; panel < end; ++panel) {
        product.Run(static_cast<int64_t>(g), panel, rows[g], x + first * weights.in,
                    y + first * weights.out);
      }
    }
  });
}

}  // namespace trimtab
