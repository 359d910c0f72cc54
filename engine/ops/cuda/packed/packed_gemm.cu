// Products with packed weights, and rows looked up in them. A block has a panel of W and a few rows
// of x, and its warps share out the columns of W; a lane has a row of the panel. Each word of W is
// read once for all the block's rows: right for few rows, which are bound by that.
// Contract in engine/ops/packed/packed_gemm.h.
#include "engine/ops/cuda/elementwise/fill.h"
#include "engine/ops/cuda/kernel.h"

namespace trimtab {
namespace {

constexpr int kSlices = 8;     // warps of a block
constexpr int kUnitWords = 4;  // that a lane has on their way at once; of int4 a group
constexpr int kManyRows = 4;   // of x, of a block
static_assert(kManyRows <= kSlices);
static_assert(kPanelRows == kWarpSize);

struct PackedGeometry {
  const float* scales;        // nullptr without
  const float* input_scales;  // likewise
  int64_t m;
  int64_t out;
  int64_t in;
  int64_t groups;
  int64_t panel_size;  // elements of `values` in a panel

  // Of row `lane` of a panel, in the group of column `k`.
  TRIMTAB_HOST_DEVICE float ScaleAt(int64_t panel, int64_t k, int lane) const {
    if (scales == nullptr) return 1.0f;
    const int64_t group = groups > 1 ? k / kInt4Group : 0;
    return scales[(panel * groups + group) * kPanelRows + lane];
  }
};

TRIMTAB_HOST_DEVICE float NumberToFloat(int8_t value) { return static_cast<float>(value); }
template <typename T>
TRIMTAB_HOST_DEVICE float NumberToFloat(T value) {
  return ToFloat(value);
}

// Numbers of a word: two to the byte where bytes are raw.
template <typename Number>
constexpr int64_t kWordNumbers = std::is_same_v<Number, uint8_t>
                                     ? 8
                                     : static_cast<int64_t>(4 / sizeof(Number));

// The number of column `j` of those that share a word.
template <typename Number>
TRIMTAB_HOST_DEVICE float NumberOf(uint32_t word, int64_t j) {
  if constexpr (std::is_same_v<Number, float>) {
    return std::bit_cast<float>(word);
  } else if constexpr (std::is_same_v<Number, uint8_t>) {
    return static_cast<float>(static_cast<int32_t>((word >> (4 * j) ^ Int4Flip(j)) << 28) >> 28);
  } else if constexpr (sizeof(Number) == 1) {
    return NumberToFloat(std::bit_cast<Number>(static_cast<uint8_t>(word >> (8 * j))));
  } else {
    return NumberToFloat(std::bit_cast<Number>(static_cast<uint16_t>(word >> (16 * j))));
  }
}

// What a panel's row `lane` has in column k.
template <typename Number>
TRIMTAB_HOST_DEVICE float WeightAt(const Number* panel, int64_t k, int lane) {
  constexpr int64_t kColumns = kWordNumbers<Number>;
  const auto* words = reinterpret_cast<const uint32_t*>(panel);
  return NumberOf<Number>(words[k / kColumns * kPanelRows + lane], k % kColumns);
}

// Adds to sums[r] what the columns of one unit make with row first_row + r, before scales that all
// columns share. `kWhole`: the unit has all its columns.
template <bool kWhole, int kRows, typename T, typename Number>
__device__ __forceinline__ void AddUnit(const PackedGeometry& g, const T* __restrict__ x,
                                        const uint32_t* __restrict__ words, int64_t unit,
                                        int64_t first_row, int lane, float scale,
                                        float (&sums)[kRows]) {
  constexpr int64_t kColumns = kWordNumbers<Number>;
  const int64_t first_word = unit * kUnitWords;
  uint32_t loaded[kUnitWords] = {};
#pragma unroll
  for (int w = 0; w < kUnitWords; ++w) {
    if (kWhole || (first_word + w) * kColumns < g.in) {
      loaded[w] = words[(first_word + w) * kPanelRows + lane];
    }
  }
  float part[kRows] = {};
#pragma unroll
  for (int w = 0; w < kUnitWords; ++w) {
#pragma unroll
    for (int64_t j = 0; j < kColumns; ++j) {
      const int64_t k = (first_word + w) * kColumns + j;
      if (!kWhole && k >= g.in) break;
      float weight = NumberOf<Number>(loaded[w], j);
      if (g.input_scales != nullptr) weight *= g.input_scales[k];
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        const int64_t row = first_row + r < g.m ? first_row + r : g.m - 1;
        part[r] += ToFloat(x[row * g.in + k]) * weight;
      }
    }
  }
#pragma unroll
  for (int r = 0; r < kRows; ++r) sums[r] += part[r] * scale;
}

template <int kRows, typename T, typename Number, typename Y>
__global__ void __launch_bounds__(kSlices* kWarpSize)
    PackedGemmKernel(PackedGeometry g, const T* __restrict__ x, const Number* __restrict__ values,
                     const Y* __restrict__ bias, Y* __restrict__ y) {
  __shared__ float partial[kSlices][kRows][kWarpSize];
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const int slice = static_cast<int>(threadIdx.x) / kWarpSize;
  const int64_t panel = blockIdx.x;
  const int64_t column = panel * kPanelRows + lane;
  const auto* words = reinterpret_cast<const uint32_t*>(values + panel * g.panel_size);
  constexpr int64_t kUnitColumns = kUnitWords * kWordNumbers<Number>;
  const int64_t whole_units = g.in / kUnitColumns;
  const int64_t units = (g.in + kUnitColumns - 1) / kUnitColumns;
  for (int64_t first_row = int64_t{blockIdx.y} * kRows; first_row < g.m;
       first_row += int64_t{gridDim.y} * kRows) {
    float sums[kRows] = {};
    for (int64_t unit = slice; unit < units; unit += kSlices) {
      const float scale = g.groups > 1 ? g.ScaleAt(panel, unit * kUnitColumns, lane) : 1.0f;
      if (unit < whole_units) {
        AddUnit<true, kRows, T, Number>(g, x, words, unit, first_row, lane, scale, sums);
      } else {
        AddUnit<false, kRows, T, Number>(g, x, words, unit, first_row, lane, scale, sums);
      }
    }
#pragma unroll
    for (int r = 0; r < kRows; ++r) partial[slice][r][lane] = sums[r];
    __syncthreads();
    const int64_t row = first_row + slice;
    if (slice < kRows && row < g.m && column < g.out) {
      float sum = 0;
      for (int s = 0; s < kSlices; ++s) sum += partial[s][slice][lane];
      if (g.groups <= 1) sum *= g.ScaleAt(panel, 0, lane);
      if (bias != nullptr) sum += ToFloat(bias[column]);
      y[row * g.out + column] = FromFloat<Y>(sum);
    }
    __syncthreads();  // before the next rows' sums
  }
}

// Calls function with a null pointer of the type that numbers are stored as.
template <typename Function>
void DispatchNumbers(DType stored, const Function& function) {
  if (stored == DType::kI8) return function(static_cast<int8_t*>(nullptr));
  if (stored == DType::kU8) return function(static_cast<uint8_t*>(nullptr));
  if (stored == DType::kF8E4M3) return function(static_cast<E4M3*>(nullptr));
  DispatchFloat(stored, [&](auto* number) { function(number); });
}

PackedGeometry GeometryOf(const PackedMatrix& weight, int64_t m) {
  return {.scales = Data<const float>(weight.scales),
          .input_scales = Data<const float>(weight.input_scales),
          .m = m,
          .out = weight.out,
          .in = weight.in,
          .groups = weight.groups(),
          .panel_size = weight.values.dim(2) * weight.values.dim(3)};
}

void PackedGemmCuda(const Tensor& x, const PackedMatrix& weight, const Tensor& bias, Tensor& y) {
  const LaunchContext context = ContextOf(y.device());
  const PackedGeometry geometry = GeometryOf(weight, x.dim(0));
  if (geometry.m == 0) return;
  constexpr int64_t kMostRowBlocks = 1024;
  const bool one = geometry.m == 1;
  const int64_t row_blocks = one ? 1 : (geometry.m + kManyRows - 1) / kManyRows;
  const dim3 grid(static_cast<unsigned>(weight.panels()),
                  static_cast<unsigned>(std::min(row_blocks, kMostRowBlocks)));
  const dim3 block(kSlices * kWarpSize);
  DispatchFloat(x.dtype(), [&](auto* row) {
    using T = std::remove_pointer_t<decltype(row)>;
    DispatchNumbers(weight.values.dtype(), [&](auto* number) {
      using Number = std::remove_pointer_t<decltype(number)>;
      const auto launch = [&](auto* result) {
        using Y = std::remove_pointer_t<decltype(result)>;
        Launch(context,
               one ? PackedGemmKernel<1, T, Number, Y> : PackedGemmKernel<kManyRows, T, Number, Y>,
               grid, block, 0, geometry, Data<const T>(x), Data<const Number>(weight.values),
               Data<const Y>(bias), Data<Y>(y));
      };
      if (y.dtype() == DType::kF32) {
        launch(static_cast<float*>(nullptr));
      } else {
        launch(row);
      }
    });
  });
}

constexpr int kLookupThreads = 128;

// A thread per element of out [n, in].
template <typename T, typename Number>
__global__ void __launch_bounds__(kLookupThreads)
    PackedLookupKernel(PackedGeometry g, const int32_t* __restrict__ tokens, int64_t vocab_start,
                       const Number* __restrict__ values, T* __restrict__ out) {
  const int64_t stride = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < g.m * g.in; i += stride) {
    const int64_t row = tokens[i / g.in] - vocab_start;
    const int64_t k = i % g.in;
    float value = 0;
    if (row >= 0 && row < g.out) {
      const int64_t panel = row / kPanelRows;
      const int lane = static_cast<int>(row % kPanelRows);
      value = WeightAt(values + panel * g.panel_size, k, lane) * g.ScaleAt(panel, k, lane);
      if (g.input_scales != nullptr) value *= g.input_scales[k];
    }
    out[i] = FromFloat<T>(value);
  }
}

void PackedLookupCuda(const Tensor& tokens, const PackedMatrix& table, int64_t vocab_start,
                      Tensor& out) {
  const LaunchContext context = ContextOf(out.device());
  const PackedGeometry geometry = GeometryOf(table, out.dim(0));
  if (geometry.m == 0) return;
  constexpr int kBlocksPerMultiprocessor = 16;
  const dim3 grid(GridFor(context, out.numel(), kLookupThreads, kBlocksPerMultiprocessor));
  DispatchFloat(out.dtype(), [&](auto* element) {
    using T = std::remove_pointer_t<decltype(element)>;
    DispatchNumbers(table.values.dtype(), [&](auto* number) {
      using Number = std::remove_pointer_t<decltype(number)>;
      Launch(context, PackedLookupKernel<T, Number>, grid, dim3(kLookupThreads), 0, geometry,
             Data<const int32_t>(tokens), vocab_start, Data<const Number>(table.values),
             Data<T>(out));
    });
  });
}

}  // namespace

void FillPackedGemmOps(CudaOps& ops) {
  ops.packed_gemm = PackedGemmCuda;
  ops.packed_lookup = PackedLookupCuda;
}

}  // namespace trimtab
