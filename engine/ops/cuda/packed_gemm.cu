// Products with packed weights, a thread for each element of the result: neighbours read
// neighbouring rows of W. Right for few rows, which are bound by reading W. Contract in
// engine/ops/packed_gemm.h.
#include "engine/ops/cuda/fill.h"
#include "engine/ops/cuda/kernel.h"

namespace trimtab {
namespace {

// A warp reads one panel's row; the block's warps share rows of x.
constexpr int kRowsPerBlock = 4;
static_assert(kPanelRows == kWarpSize);

struct PackedGeometry {
  const float* scales;  // nullptr without
  int64_t m;
  int64_t out;
  int64_t in;
  int64_t groups;

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

// What a panel's row `lane` has in column k.
template <typename Number>
TRIMTAB_HOST_DEVICE float WeightAt(const Number* panel, int64_t k, int lane) {
  if constexpr (std::is_same_v<Number, uint8_t>) {
    constexpr int kHalf = static_cast<int>(kPanelRows / 2);
    const auto pair = static_cast<uint32_t>(panel[k * kHalf + lane % kHalf]);
    const auto top = static_cast<int32_t>(pair << (lane < kHalf ? 28 : 24));
    return static_cast<float>(top >> 28);
  } else {
    return NumberToFloat(panel[k * kPanelRows + lane]);
  }
}

template <typename T, typename Number, typename Y>
__global__ void __launch_bounds__(kRowsPerBlock* kWarpSize)
    PackedGemmKernel(PackedGeometry g, const T* __restrict__ x, const Number* __restrict__ values,
                     const Y* __restrict__ bias, Y* __restrict__ y) {
  const int lane = static_cast<int>(threadIdx.x);
  const int64_t panel = blockIdx.x;
  const int64_t column = panel * kPanelRows + lane;
  constexpr int64_t kWidth = std::is_same_v<Number, uint8_t> ? kPanelRows / 2 : kPanelRows;
  const Number* numbers = values + panel * g.in * kWidth;
  for (int64_t row = int64_t{blockIdx.y} * kRowsPerBlock + threadIdx.y; row < g.m;
       row += int64_t{gridDim.y} * kRowsPerBlock) {
    if (column >= g.out) continue;
    float sum = bias != nullptr ? ToFloat(bias[column]) : 0.0f;
    for (int64_t k = 0; k < g.in; ++k) {
      sum += ToFloat(x[row * g.in + k]) * (WeightAt(numbers, k, lane) * g.ScaleAt(panel, k, lane));
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

void PackedGemmCuda(const Tensor& x, const PackedMatrix& weight, const Tensor& bias, Tensor& y) {
  const LaunchContext context = ContextOf(y.device());
  const PackedGeometry geometry = {.scales = Data<const float>(weight.scales),
                                   .m = x.dim(0),
                                   .out = weight.out,
                                   .in = weight.in,
                                   .groups = weight.groups()};
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

}  // namespace

void FillPackedGemmOps(CudaOps& ops) { ops.packed_gemm = PackedGemmCuda; }

}  // namespace trimtab
