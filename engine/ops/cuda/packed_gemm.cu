// Products with packed weights and rows looked up in them, a thread for each element of the result:
// neighbours read neighbouring rows of W. Right for few rows, which are bound by reading W.
// Contract in engine/ops/packed_gemm.h.
#include "engine/ops/cuda/fill.h"
#include "engine/ops/cuda/kernel.h"

namespace trimtab {
namespace {

// A warp reads one panel's row; the block's warps share rows of x.
constexpr int kRowsPerBlock = 4;
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

// What a panel's row `lane` has in column k.
template <typename Number>
TRIMTAB_HOST_DEVICE float WeightAt(const Number* panel, int64_t k, int lane) {
  const int64_t index = PanelIndex(kWordNumbers<Number>, k, lane);
  if constexpr (std::is_same_v<Number, uint8_t>) {
    const uint32_t number = static_cast<uint32_t>(panel[index / 2]) >> (index % 2 * 4);
    const auto top = static_cast<int32_t>((number ^ Int4Flip(k)) << 28);
    return static_cast<float>(top >> 28);
  } else {
    return NumberToFloat(panel[index]);
  }
}

template <typename T, typename Number, typename Y>
__global__ void __launch_bounds__(kRowsPerBlock* kWarpSize)
    PackedGemmKernel(PackedGeometry g, const T* __restrict__ x, const Number* __restrict__ values,
                     const Y* __restrict__ bias, Y* __restrict__ y) {
  const int lane = static_cast<int>(threadIdx.x);
  const int64_t panel = blockIdx.x;
  const int64_t column = panel * kPanelRows + lane;
  const Number* numbers = values + panel * g.panel_size;
  for (int64_t row = int64_t{blockIdx.y} * kRowsPerBlock + threadIdx.y; row < g.m;
       row += int64_t{gridDim.y} * kRowsPerBlock) {
    if (column >= g.out) continue;
    float sum = bias != nullptr ? ToFloat(bias[column]) : 0.0f;
    for (int64_t k = 0; k < g.in; ++k) {
      const float input =
          ToFloat(x[row * g.in + k]) * (g.input_scales != nullptr ? g.input_scales[k] : 1.0f);
      sum += input * (WeightAt(numbers, k, lane) * g.ScaleAt(panel, k, lane));
    }
    y[row * g.out + column] = FromFloat<Y>(sum);
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
  const int64_t row_blocks = (geometry.m + kRowsPerBlock - 1) / kRowsPerBlock;
  const dim3 grid(static_cast<unsigned>(weight.panels()),
                  static_cast<unsigned>(std::min(row_blocks, kMostRowBlocks)));
  const dim3 block(kWarpSize, kRowsPerBlock);
  DispatchFloat(x.dtype(), [&](auto* row) {
    using T = std::remove_pointer_t<decltype(row)>;
    DispatchNumbers(weight.values.dtype(), [&](auto* number) {
      using Number = std::remove_pointer_t<decltype(number)>;
      const auto launch = [&](auto* result) {
        using Y = std::remove_pointer_t<decltype(result)>;
        Launch(context, PackedGemmKernel<T, Number, Y>, grid, block, 0, geometry, Data<const T>(x),
               Data<const Number>(weight.values), Data<const Y>(bias), Data<Y>(y));
      };
      if (y.dtype() == DType::kF32) {
        launch(static_cast<float*>(nullptr));
      } else {
        launch(row);
      }
    });
  });
}

// A thread per element of out [n, in].
template <typename T, typename Number>
__global__ void __launch_bounds__(kRowsPerBlock* kWarpSize)
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
  constexpr int kThreads = kRowsPerBlock * kWarpSize;
  constexpr int kBlocksPerMultiprocessor = 16;
  const dim3 grid(GridFor(context, out.numel(), kThreads, kBlocksPerMultiprocessor));
  DispatchFloat(out.dtype(), [&](auto* element) {
    using T = std::remove_pointer_t<decltype(element)>;
    DispatchNumbers(table.values.dtype(), [&](auto* number) {
      using Number = std::remove_pointer_t<decltype(number)>;
      Launch(context, PackedLookupKernel<T, Number>, grid, dim3(kThreads), 0, geometry,
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
