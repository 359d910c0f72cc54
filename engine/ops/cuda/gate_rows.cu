// Rows times the sigmoid of their gates, a warp per row. Contract in engine/ops/gate_rows.h.
#include "engine/ops/cuda/fill.h"
#include "engine/ops/cuda/kernel.h"

namespace trimtab {
namespace {

constexpr int kWarps = 8;
constexpr int kBlocksPerMultiprocessor = 8;

template <typename T>
__global__ void __launch_bounds__(kWarps* kWarpSize)
    GateKernel(const float* __restrict__ gate, const T* x, int64_t rows, int64_t columns, T* y) {
  const int64_t stride = int64_t{gridDim.x} * kWarps;
  for (int64_t row = int64_t{blockIdx.x} * kWarps + threadIdx.y; row < rows; row += stride) {
    const float factor = Sigmoid(gate[row]);
    for (int64_t i = row * columns + threadIdx.x; i < (row + 1) * columns; i += kWarpSize) {
      y[i] = FromFloat<T>(factor * ToFloat(x[i]));
    }
  }
}

template <typename T>
__global__ void __launch_bounds__(kWarps* kWarpSize)
    GateBackwardKernel(const float* __restrict__ gate, const T* __restrict__ x,
                       const T* __restrict__ dy, int64_t rows, int64_t columns, T* __restrict__ dx,
                       float* __restrict__ dgate) {
  const int64_t stride = int64_t{gridDim.x} * kWarps;
  for (int64_t row = int64_t{blockIdx.x} * kWarps + threadIdx.y; row < rows; row += stride) {
    const float factor = Sigmoid(gate[row]);
    float dot = 0;
    for (int64_t i = row * columns + threadIdx.x; i < (row + 1) * columns; i += kWarpSize) {
      const float slope = ToFloat(dy[i]);
      dot += slope * ToFloat(x[i]);
      dx[i] = FromFloat<T>(factor * slope);
    }
    dot = WarpSum(dot);
    if (threadIdx.x == 0) dgate[row] = factor * (1.0f - factor) * dot;
  }
}

dim3 GridOf(const LaunchContext& context, int64_t rows) {
  return dim3(GridFor(context, rows, kWarps, kBlocksPerMultiprocessor));
}

void GateRowsCuda(const Tensor& gate, const Tensor& x, Tensor& y) {
  const LaunchContext context = ContextOf(x.device());
  DispatchFloat(x.dtype(), [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    Launch(context, GateKernel<T>, GridOf(context, x.dim(0)), dim3(kWarpSize, kWarps), 0,
           gate.f32(), Data<const T>(x), x.dim(0), x.dim(1), Data<T>(y));
  });
}

void GateRowsBackwardCuda(const Tensor& gate, const Tensor& x, const Tensor& dy, Tensor& dx,
                          Tensor& dgate) {
  const LaunchContext context = ContextOf(x.device());
  DispatchFloat(x.dtype(), [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    Launch(context, GateBackwardKernel<T>, GridOf(context, x.dim(0)), dim3(kWarpSize, kWarps), 0,
           gate.f32(), Data<const T>(x), Data<const T>(dy), x.dim(0), x.dim(1), Data<T>(dx),
           dgate.f32());
  });
}

}  // namespace

void FillGateRowsOps(CudaOps& ops) {
  ops.gate_rows = GateRowsCuda;
  ops.gate_rows_backward = GateRowsBackwardCuda;
}

}  // namespace trimtab
