// Activation functions. Contract in engine/ops/activation/activation.h.
#include "engine/ops/cuda/activation/activation_math.h"
#include "engine/ops/cuda/elementwise/fill.h"
#include "engine/ops/cuda/kernel.h"

namespace trimtab {
namespace {

constexpr int kThreads = 256;
// Packs in flight per thread and tensor: with one, loads of a whole multiprocessor are too few
// bytes to hide the latency of memory.
constexpr int kUnroll = 2;

// Elements are independent: thread i of a block takes packs i, i + kThreads, ... of its stretch.
template <ActivationFunction kFunction, typename T, int N>
__global__ void __launch_bounds__(kThreads) ForwardKernel(const T* x, T* y, int64_t packs) {
  const int64_t first = int64_t{blockIdx.x} * kThreads * kUnroll + threadIdx.x;
  float values[kUnroll][N];
#pragma unroll
  for (int u = 0; u < kUnroll; ++u) {
    const int64_t pack = first + u * kThreads;
    if (pack < packs) LoadFloats(x + pack * N, values[u]);
  }
#pragma unroll
  for (int u = 0; u < kUnroll; ++u) {
    const int64_t pack = first + u * kThreads;
    if (pack >= packs) break;
#pragma unroll
    for (int j = 0; j < N; ++j)
      values[u][j] = ActivationMath<T>::template Value<kFunction>(values[u][j]);
    StoreFloats(y + pack * N, values[u]);
  }
}

// dx may be dy: each thread reads what it overwrites.
template <ActivationFunction kFunction, typename T, int N>
__global__ void __launch_bounds__(kThreads)
    BackwardKernel(const T* x, const T* dy, T* dx, int64_t packs) {
  const int64_t first = int64_t{blockIdx.x} * kThreads * kUnroll + threadIdx.x;
  Pack<T, N> in[kUnroll];
  Pack<T, N> gradient[kUnroll];
#pragma unroll
  for (int u = 0; u < kUnroll; ++u) {
    const int64_t pack = first + u * kThreads;
    if (pack >= packs) continue;
    in[u] = LoadPack<N>(x + pack * N);
    gradient[u] = LoadPack<N>(dy + pack * N);
  }
#pragma unroll
  for (int u = 0; u < kUnroll; ++u) {
    const int64_t pack = first + u * kThreads;
    if (pack >= packs) break;
    float values[N];
#pragma unroll
    for (int j = 0; j < N; ++j) {
      values[j] = ToFloat(gradient[u][j]) *
                  ActivationMath<T>::template Derivative<kFunction>(ToFloat(in[u][j]));
    }
    StoreFloats(dx + pack * N, values);
  }
}

// A matrix of packs, cut so that each block has threads of one row only: no division per thread.
struct RowCut {
  int64_t packs;   // per row
  int chunks;      // blocks per row
  unsigned block;  // threads
};

RowCut CutRows(int64_t packs) {
  constexpr int64_t kLargestBlock = 384;
  const int64_t chunks = (packs + kLargestBlock - 1) / kLargestBlock;
  const int64_t threads = (packs + chunks - 1) / chunks;
  return {packs, static_cast<int>(chunks),
          static_cast<unsigned>((threads + kWarpSize - 1) / kWarpSize * kWarpSize)};
}

template <ActivationFunction kFunction, typename T, int N>
__global__ void GatedForwardKernel(const T* gate_up, T* y, int64_t packs, int chunks) {
  const int64_t row = blockIdx.x / static_cast<unsigned>(chunks);
  const int64_t pack =
      int64_t{blockIdx.x % static_cast<unsigned>(chunks)} * blockDim.x + threadIdx.x;
  if (pack >= packs) return;
  const T* source = gate_up + (row * 2 * packs + pack) * N;
  const Pack<T, N> gate = LoadPack<N>(source);
  const Pack<T, N> up = LoadPack<N>(source + packs * N);
  float values[N];
#pragma unroll
  for (int j = 0; j < N; ++j) {
    values[j] = ActivationMath<T>::template Value<kFunction>(ToFloat(gate[j])) *
                GateFactor<kFunction>(ToFloat(up[j]));
  }
  StoreFloats(y + (row * packs + pack) * N, values);
}

template <ActivationFunction kFunction, typename T, int N>
__global__ void GatedBackwardKernel(const T* gate_up, const T* dy, T* dgate_up, int64_t packs,
                                    int chunks) {
  const int64_t row = blockIdx.x / static_cast<unsigned>(chunks);
  const int64_t pack =
      int64_t{blockIdx.x % static_cast<unsigned>(chunks)} * blockDim.x + threadIdx.x;
  if (pack >= packs) return;
  const int64_t gate_index = (row * 2 * packs + pack) * N;
  const Pack<T, N> gate = LoadPack<N>(gate_up + gate_index);
  const Pack<T, N> up = LoadPack<N>(gate_up + gate_index + packs * N);
  const Pack<T, N> gradient = LoadPack<N>(dy + (row * packs + pack) * N);
  float out[2][N];  // gate's, up's
#pragma unroll
  for (int j = 0; j < N; ++j) {
    ActivationMath<T>::template GatedBackward<kFunction>(
        ToFloat(gate[j]), ToFloat(up[j]), ToFloat(gradient[j]), out[0][j], out[1][j]);
  }
#pragma unroll
  for (int k = 0; k < 2; ++k) {
    StoreFloats(dgate_up + ((2 * row + k) * packs + pack) * N, out[k]);
  }
}

// Calls fn(std::integral_constant<ActivationFunction, function>, T* type) with the type of `dtype`.
template <typename Fn>
void DispatchFunction(ActivationFunction function, DType dtype, Fn fn) {
  using enum ActivationFunction;
  const auto with = [&]<ActivationFunction kFunction>() {
    DispatchFloat(dtype, [&](auto* value) {
      fn(std::integral_constant<ActivationFunction, kFunction>(), value);
    });
  };
  switch (function) {
    case kGelu:
      return with.template operator()<kGelu>();
    case kGeluErf:
      return with.template operator()<kGeluErf>();
    case kRelu:
      return with.template operator()<kRelu>();
    case kSquaredRelu:
      return with.template operator()<kSquaredRelu>();
    case kSilu:
      return with.template operator()<kSilu>();
    case kClampedSwish:
      return with.template operator()<kClampedSwish>();
  }
}

unsigned ElementBlocks(int64_t packs) {
  constexpr int64_t kPerBlock = int64_t{kThreads} * kUnroll;
  return static_cast<unsigned>((packs + kPerBlock - 1) / kPerBlock);
}

void ActivationForwardCuda(ActivationFunction function, const Tensor& x, Tensor& y) {
  const LaunchContext context = ContextOf(y.device());
  DispatchFunction(function, x.dtype(), [&](auto chosen, auto* value) {
    constexpr ActivationFunction kFunction = decltype(chosen)::value;
    using T = std::remove_pointer_t<decltype(value)>;
    constexpr int kN = kPackSize<T>;
    const int64_t n = x.numel();
    if (RowsAligned<T>(n, x.raw(), y.raw())) {
      Launch(context, ForwardKernel<kFunction, T, kN>, dim3(ElementBlocks(n / kN)), dim3(kThreads),
             0, Data<T>(x), Data<T>(y), n / kN);
    } else {
      Launch(context, ForwardKernel<kFunction, T, 1>, dim3(ElementBlocks(n)), dim3(kThreads), 0,
             Data<T>(x), Data<T>(y), n);
    }
  });
}

void ActivationBackwardCuda(ActivationFunction function, const Tensor& x, const Tensor& dy,
                            Tensor& dx) {
  const LaunchContext context = ContextOf(dx.device());
  DispatchFunction(function, x.dtype(), [&](auto chosen, auto* value) {
    constexpr ActivationFunction kFunction = decltype(chosen)::value;
    using T = std::remove_pointer_t<decltype(value)>;
    constexpr int kN = kPackSize<T>;
    const int64_t n = x.numel();
    if (RowsAligned<T>(n, x.raw(), dy.raw(), dx.raw())) {
      Launch(context, BackwardKernel<kFunction, T, kN>, dim3(ElementBlocks(n / kN)), dim3(kThreads),
             0, Data<T>(x), Data<T>(dy), Data<T>(dx), n / kN);
    } else {
      Launch(context, BackwardKernel<kFunction, T, 1>, dim3(ElementBlocks(n)), dim3(kThreads), 0,
             Data<T>(x), Data<T>(dy), Data<T>(dx), n);
    }
  });
}

void GatedActivationForwardCuda(ActivationFunction function, const Tensor& gate_up, Tensor& y) {
  const LaunchContext context = ContextOf(y.device());
  const int64_t rows = y.dim(0);
  const int64_t columns = y.dim(1);
  if (y.numel() == 0) return;
  DispatchFunction(function, y.dtype(), [&](auto chosen, auto* value) {
    constexpr ActivationFunction kFunction = decltype(chosen)::value;
    using T = std::remove_pointer_t<decltype(value)>;
    constexpr int kN = kPackSize<T>;
    const bool aligned = RowsAligned<T>(columns, gate_up.raw(), y.raw());
    const RowCut cut = CutRows(aligned ? columns / kN : columns);
    Launch(context,
           aligned ? GatedForwardKernel<kFunction, T, kN> : GatedForwardKernel<kFunction, T, 1>,
           dim3(static_cast<unsigned>(rows * cut.chunks)), dim3(cut.block), 0, Data<T>(gate_up),
           Data<T>(y), cut.packs, cut.chunks);
  });
}

void GatedActivationBackwardCuda(ActivationFunction function, const Tensor& gate_up,
                                 const Tensor& dy, Tensor& dgate_up) {
  const LaunchContext context = ContextOf(dgate_up.device());
  const int64_t rows = dy.dim(0);
  const int64_t columns = dy.dim(1);
  if (dy.numel() == 0) return;
  DispatchFunction(function, dy.dtype(), [&](auto chosen, auto* value) {
    constexpr ActivationFunction kFunction = decltype(chosen)::value;
    using T = std::remove_pointer_t<decltype(value)>;
    constexpr int kN = kPackSize<T>;
    const bool aligned = RowsAligned<T>(columns, gate_up.raw(), dy.raw(), dgate_up.raw());
    const RowCut cut = CutRows(aligned ? columns / kN : columns);
    Launch(context,
           aligned ? GatedBackwardKernel<kFunction, T, kN> : GatedBackwardKernel<kFunction, T, 1>,
           dim3(static_cast<unsigned>(rows * cut.chunks)), dim3(cut.block), 0, Data<T>(gate_up),
           Data<T>(dy), Data<T>(dgate_up), cut.packs, cut.chunks);
  });
}

}  // namespace

void FillActivationOps(CudaOps& ops) {
  ops.activation_forward = ActivationForwardCuda;
  ops.activation_backward = ActivationBackwardCuda;
  ops.gated_activation_forward = GatedActivationForwardCuda;
  ops.gated_activation_backward = GatedActivationBackwardCuda;
}

}  // namespace trimtab
