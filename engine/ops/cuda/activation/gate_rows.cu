// Rows times the sigmoid of their gates, a warp per row. Contract in
// engine/ops/activation/gate_rows.h.
#include "engine/ops/cuda/elementwise/fill.h"
#include "engine/ops/cuda/kernel.h"

namespace trimtab {
namespace {

constexpr int kWarps = 8;
constexpr int kBlocksPerMultiprocessor = 8;
constexpr int kUnroll = 4;  // packs of a lane on their way at once, of each operand

// Between packs of N columns of a lane.
template <int N>
inline constexpr int64_t kPackStride = int64_t{kWarpSize} * N;

// Calls body(first) with the first of each kUnroll packs of this lane.
template <int N, typename Body>
__device__ __forceinline__ void ForEachPacks(int64_t columns, Body body) {
  for (int64_t first = threadIdx.x * N; first < columns; first += kUnroll * kPackStride<N>) {
    body(first);
  }
}

template <int N, typename T>
__global__ void __launch_bounds__(kWarps* kWarpSize)
    GateKernel(const float* __restrict__ gate, const T* x, int64_t rows, int64_t columns, T* y) {
  const int64_t stride = int64_t{gridDim.x} * kWarps;
  for (int64_t row = int64_t{blockIdx.x} * kWarps + threadIdx.y; row < rows; row += stride) {
    const float factor = Sigmoid(gate[row]);
    ForEachPacks<N>(columns, [&](int64_t first) {
      Pack<T, N> packs[kUnroll];
#pragma unroll
      for (int u = 0; u < kUnroll; ++u) {
        const int64_t column = first + u * kPackStride<N>;
        if (column < columns) packs[u] = LoadPack<N>(x + row * columns + column);
      }
#pragma unroll
      for (int u = 0; u < kUnroll; ++u) {
        const int64_t column = first + u * kPackStride<N>;
        if (column >= columns) continue;
        float values[N];
#pragma unroll
        for (int i = 0; i < N; ++i) values[i] = factor * ToFloat(packs[u][i]);
        StoreFloats(y + row * columns + column, values);
      }
    });
  }
}

template <int N, typename T>
__global__ void __launch_bounds__(kWarps* kWarpSize)
    GateBackwardKernel(const float* __restrict__ gate, const T* __restrict__ x,
                       const T* __restrict__ dy, int64_t rows, int64_t columns, T* __restrict__ dx,
                       float* __restrict__ dgate) {
  const int64_t stride = int64_t{gridDim.x} * kWarps;
  for (int64_t row = int64_t{blockIdx.x} * kWarps + threadIdx.y; row < rows; row += stride) {
    const float factor = Sigmoid(gate[row]);
    float dot = 0;
    ForEachPacks<N>(columns, [&](int64_t first) {
      Pack<T, N> slopes[kUnroll];
      Pack<T, N> packs[kUnroll];
#pragma unroll
      for (int u = 0; u < kUnroll; ++u) {
        const int64_t column = first + u * kPackStride<N>;
        if (column >= columns) continue;
        slopes[u] = LoadPack<N>(dy + row * columns + column);
        packs[u] = LoadPack<N>(x + row * columns + column);
      }
#pragma unroll
      for (int u = 0; u < kUnroll; ++u) {
        const int64_t column = first + u * kPackStride<N>;
        if (column >= columns) continue;
        float values[N];
#pragma unroll
        for (int i = 0; i < N; ++i) {
          const float slope = ToFloat(slopes[u][i]);
          dot += slope * ToFloat(packs[u][i]);
          values[i] = factor * slope;
        }
        StoreFloats(dx + row * columns + column, values);
      }
    });
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
    const bool aligned = RowsAligned<T>(x.dim(1), x.raw(), y.raw());
    Launch(context, aligned ? GateKernel<kPackSize<T>, T> : GateKernel<1, T>,
           GridOf(context, x.dim(0)), dim3(kWarpSize, kWarps), 0, gate.f32(), Data<const T>(x),
           x.dim(0), x.dim(1), Data<T>(y));
  });
}

void GateRowsBackwardCuda(const Tensor& gate, const Tensor& x, const Tensor& dy, Tensor& dx,
                          Tensor& dgate) {
  const LaunchContext context = ContextOf(x.device());
  DispatchFloat(x.dtype(), [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    const bool aligned = RowsAligned<T>(x.dim(1), x.raw(), dy.raw(), dx.raw());
    Launch(context, aligned ? GateBackwardKernel<kPackSize<T>, T> : GateBackwardKernel<1, T>,
           GridOf(context, x.dim(0)), dim3(kWarpSize, kWarps), 0, gate.f32(), Data<const T>(x),
           Data<const T>(dy), x.dim(0), x.dim(1), Data<T>(dx), dgate.f32());
  });
}

}  // namespace

void FillGateRowsOps(CudaOps& ops) {
  ops.gate_rows = GateRowsCuda;
  ops.gate_rows_backward = GateRowsBackwardCuda;
}

}  // namespace trimtab
