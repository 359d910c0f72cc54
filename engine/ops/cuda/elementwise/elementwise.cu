// Element-wise kernels. Each is bound by memory: 16 bytes per access, several accesses of a thread
// in flight before the first is used, a grid that just fills the GPU.
#include "engine/ops/cuda/elementwise/fill.h"
#include "engine/ops/cuda/kernel.h"

namespace trimtab {
namespace {

constexpr int kThreads = 256;
constexpr int kBlocksPerMultiprocessor = 8;
constexpr int kUnroll = 4;  // packs of a thread in flight

// The work of one thread: packs begin, begin + stride, ... of the whole ones, and for the first
// threads of the grid one element each of what remains.
struct Span {
  int64_t begin;
  int64_t stride;
};

__device__ __forceinline__ Span SpanOfThread() {
  return {int64_t{blockIdx.x} * blockDim.x + threadIdx.x, int64_t{gridDim.x} * blockDim.x};
}

// Calls use(pack, load(pack)) for each of the thread's packs, kUnroll loads before their uses.
template <typename Load, typename Use>
__device__ __forceinline__ void ForEachPack(int64_t packs, Load load, Use use) {
  const Span span = SpanOfThread();
  for (int64_t first = span.begin; first < packs; first += kUnroll * span.stride) {
    decltype(load(first)) loaded[kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const int64_t pack = first + u * span.stride;
      if (pack < packs) loaded[u] = load(pack);
    }
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const int64_t pack = first + u * span.stride;
      if (pack < packs) use(pack, loaded[u]);
    }
  }
}

// y = value(x) in fp32, element by element; y may be x.
template <int N, typename From, typename To, typename Value>
__device__ __forceinline__ void MapElements(const From* x, To* y, int64_t n, Value value) {
  const int64_t packs = n / N;
  ForEachPack(
      packs, [&](int64_t pack) { return LoadPack<N>(x + pack * N); },
      [&](int64_t pack, const Pack<From, N>& loaded) {
        float values[N];
#pragma unroll
        for (int i = 0; i < N; ++i) values[i] = value(ToFloat(loaded[i]));
        StoreFloats(y + pack * N, values);
      });
  const int64_t last = packs * N + SpanOfThread().begin;
  if (last < n) y[last] = FromFloat<To>(value(ToFloat(x[last])));
}

// y = value(x, y) in fp32, element by element.
template <int N, typename T, typename Value>
__device__ __forceinline__ void CombineElements(const T* __restrict__ x, T* __restrict__ y,
                                                int64_t n, Value value) {
  struct Both {
    Pack<T, N> x;
    Pack<T, N> y;
  };
  const int64_t packs = n / N;
  ForEachPack(
      packs,
      [&](int64_t pack) {
        return Both{LoadPack<N>(x + pack * N), LoadPack<N>(y + pack * N)};
      },
      [&](int64_t pack, const Both& loaded) {
        float values[N];
#pragma unroll
        for (int i = 0; i < N; ++i) values[i] = value(ToFloat(loaded.x[i]), ToFloat(loaded.y[i]));
        StoreFloats(y + pack * N, values);
      });
  const int64_t last = packs * N + SpanOfThread().begin;
  if (last < n) y[last] = FromFloat<T>(value(ToFloat(x[last]), ToFloat(y[last])));
}

// y += x.
template <int N, typename T>
__global__ void __launch_bounds__(kThreads)
    AddKernel(const T* __restrict__ x, T* __restrict__ y, int64_t n) {
  CombineElements<N>(x, y, n, [](float a, float b) { return b + a; });
}

template <int N, typename T>
__global__ void __launch_bounds__(kThreads) SoftCapKernel(SoftCap soft_cap, T* x, int64_t n) {
  MapElements<N>(x, x, n, [&](float value) { return soft_cap.Apply(value); });
}

// y = x within [-limit, limit].
template <int N, typename T>
__global__ void __launch_bounds__(kThreads) ClampKernel(float limit, const T* x, T* y, int64_t n) {
  MapElements<N>(x, y, n, [=](float value) { return fminf(fmaxf(value, -limit), limit); });
}

// dy = 0 where x is outside [-limit, limit].
template <int N, typename T>
__global__ void __launch_bounds__(kThreads)
    ClampBackwardKernel(float limit, const T* __restrict__ x, T* __restrict__ dy, int64_t n) {
  CombineElements<N>(x, dy, n, [=](float value, float gradient) {
    return value < -limit || value > limit ? 0.0f : gradient;
  });
}

template <int N, typename From, typename To>
__global__ void __launch_bounds__(kThreads)
    ConvertKernel(const From* __restrict__ source, To* __restrict__ destination, int64_t n) {
  MapElements<N>(source, destination, n, [](float value) { return value; });
}

// The first packs * N columns of `rows` rows.
template <int N, typename From, typename To>
__global__ void __launch_bounds__(kThreads)
    CopyColumnsKernel(const From* __restrict__ source, int64_t source_stride,
                      To* __restrict__ destination, int64_t destination_stride, int64_t rows,
                      int64_t packs) {
  const auto place = [=](int64_t item, int64_t stride) {
    return item / packs * stride + item % packs * N;
  };
  ForEachPack(
      rows * packs, [&](int64_t item) { return LoadPack<N>(source + place(item, source_stride)); },
      [&](int64_t item, const Pack<From, N>& loaded) {
        float values[N];
#pragma unroll
        for (int i = 0; i < N; ++i) values[i] = ToFloat(loaded[i]);
        StoreFloats(destination + place(item, destination_stride), values);
      });
}

template <int N, typename T>
__global__ void __launch_bounds__(kThreads) FillKernel(float value, T* x, int64_t n) {
  const Span span = SpanOfThread();
  const int64_t packs = n / N;
  float values[N];
#pragma unroll
  for (int i = 0; i < N; ++i) values[i] = value;
  for (int64_t pack = span.begin; pack < packs; pack += span.stride) {
    StoreFloats(x + pack * N, values);
  }
  const int64_t last = packs * N + span.begin;
  if (last < n) x[last] = FromFloat<T>(value);
}

// A warp covers 32 neighbouring packs of a row, a block kBiasRows rows of them at a time; the bias
// stays in registers. columns is a multiple of N.
constexpr int kBiasRows = kThreads / kWarpSize;

template <int N, typename T>
__global__ void __launch_bounds__(kThreads)
    AddBiasKernel(const T* __restrict__ bias, const T* __restrict__ addend, T* __restrict__ x,
                  int64_t rows, int64_t columns) {
  const int64_t column = (int64_t{blockIdx.x} * kWarpSize + threadIdx.x) * N;
  if (column >= columns) return;
  float biases[N];
  LoadFloats<N>(bias + column, biases);
  const int64_t stride = int64_t{gridDim.y} * kBiasRows;
  const int64_t begin = int64_t{blockIdx.y} * kBiasRows + threadIdx.y;
  for (int64_t first = begin; first < rows; first += kUnroll * stride) {
    Pack<T, N> loaded[kUnroll];
    Pack<T, N> added[kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const int64_t row = first + u * stride;
      if (row >= rows) continue;
      loaded[u] = LoadPack<N>(x + row * columns + column);
      if (addend != nullptr) added[u] = LoadPack<N>(addend + row * columns + column);
    }
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const int64_t row = first + u * stride;
      if (row < rows) {
        float values[N];
#pragma unroll
        for (int i = 0; i < N; ++i) values[i] = ToFloat(loaded[u][i]) + biases[i];
        if (addend != nullptr) {
#pragma unroll
          for (int i = 0; i < N; ++i) values[i] += ToFloat(added[u][i]);
        }
        StoreFloats(x + row * columns + column, values);
      }
    }
  }
}

unsigned GridOf(const LaunchContext& context, int64_t n, int pack) {
  return GridFor(context, n, int64_t{kThreads} * pack, kBlocksPerMultiprocessor);
}

void AddCuda(const Tensor& x, Tensor& y) {
  const LaunchContext context = ContextOf(y.device());
  DispatchFloat(y.dtype(), [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    constexpr int kPack = kPackSize<T>;
    const int64_t n = y.numel();
    const bool aligned = IsAligned(x.raw()) && IsAligned(y.raw());
    Launch(context, aligned ? AddKernel<kPack, T> : AddKernel<1, T>,
           GridOf(context, n, aligned ? kPack : 1), kThreads, 0, Data<const T>(x), Data<T>(y), n);
  });
}

template <typename From, typename To>
void Convert(const LaunchContext& context, const Tensor& source, Tensor& destination) {
  // As many as make 16 bytes of the wider type: neighbours then write neighbouring bytes.
  constexpr int kPack = std::min(kPackSize<From>, kPackSize<To>);
  const int64_t n = source.numel();
  const bool aligned = IsAligned(source.raw()) && IsAligned(destination.raw());
  Launch(context, aligned ? ConvertKernel<kPack, From, To> : ConvertKernel<1, From, To>,
         GridOf(context, n, aligned ? kPack : 1), kThreads, 0, Data<const From>(source),
         Data<To>(destination), n);
}

void CopyCuda(const Tensor& source, Tensor& destination) {
  const LaunchContext context = ContextOf(destination.device());
  if (source.dtype() == destination.dtype()) {
    if (source.raw() != destination.raw()) {
      CopyBytes(context, destination.raw(), source.raw(), source.bytes());
    }
    return;
  }
  DispatchFloat(source.dtype(), [&](auto* from) {
    DispatchFloat(destination.dtype(), [&](auto* to) {
      using From = std::remove_pointer_t<decltype(from)>;
      using To = std::remove_pointer_t<decltype(to)>;
      if constexpr (!std::is_same_v<From, To>) Convert<From, To>(context, source, destination);
    });
  });
}

void CopyColumnsCuda(const Tensor& source, int64_t from, Tensor& destination, int64_t to,
                     int64_t columns) {
  const LaunchContext context = ContextOf(destination.device());
  const int64_t rows = source.dim(0);
  const int64_t source_stride = source.dim(1);
  const int64_t destination_stride = destination.dim(1);
  DispatchFloat(source.dtype(), [&](auto* source_type) {
    DispatchFloat(destination.dtype(), [&](auto* destination_type) {
      using From = std::remove_pointer_t<decltype(source_type)>;
      using To = std::remove_pointer_t<decltype(destination_type)>;
      constexpr int kPack = std::min(kPackSize<From>, kPackSize<To>);
      const From* first = Data<const From>(source) + from;
      To* target = Data<To>(destination) + to;
      const bool aligned = IsAligned(first) && IsAligned(target) && columns % kPack == 0 &&
                           source_stride % kPack == 0 && destination_stride % kPack == 0;
      const int64_t packs = columns / (aligned ? kPack : 1);
      Launch(context, aligned ? CopyColumnsKernel<kPack, From, To> : CopyColumnsKernel<1, From, To>,
             GridOf(context, rows * packs, 1), kThreads, 0, first, source_stride, target,
             destination_stride, rows, packs);
    });
  });
}

void FillCuda(Tensor& x, float value) {
  const LaunchContext context = ContextOf(x.device());
  // The bits of 0 are zeros in every type; not those of -0.
  if (std::bit_cast<uint32_t>(value) == 0 || !IsPlainFloat(x.dtype())) {
    FillZero(context, x.raw(), x.bytes());
    return;
  }
  DispatchFloat(x.dtype(), [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    constexpr int kPack = kPackSize<T>;
    const bool aligned = IsAligned(x.raw());
    Launch(context, aligned ? FillKernel<kPack, T> : FillKernel<1, T>,
           GridOf(context, x.numel(), aligned ? kPack : 1), kThreads, 0, value, Data<T>(x),
           x.numel());
  });
}

void SoftCapCuda(const SoftCap& soft_cap, Tensor& x) {
  const LaunchContext context = ContextOf(x.device());
  DispatchFloat(x.dtype(), [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    constexpr int kPack = kPackSize<T>;
    const bool aligned = IsAligned(x.raw());
    Launch(context, aligned ? SoftCapKernel<kPack, T> : SoftCapKernel<1, T>,
           GridOf(context, x.numel(), aligned ? kPack : 1), kThreads, 0, soft_cap, Data<T>(x),
           x.numel());
  });
}

void ClampCuda(const Tensor& x, float limit, Tensor& y) {
  const LaunchContext context = ContextOf(x.device());
  DispatchFloat(x.dtype(), [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    constexpr int kPack = kPackSize<T>;
    const bool aligned = IsAligned(x.raw()) && IsAligned(y.raw());
    Launch(context, aligned ? ClampKernel<kPack, T> : ClampKernel<1, T>,
           GridOf(context, x.numel(), aligned ? kPack : 1), kThreads, 0, limit, Data<const T>(x),
           Data<T>(y), x.numel());
  });
}

void ClampBackwardCuda(const Tensor& x, float limit, Tensor& dy) {
  const LaunchContext context = ContextOf(x.device());
  DispatchFloat(x.dtype(), [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    constexpr int kPack = kPackSize<T>;
    const bool aligned = IsAligned(x.raw()) && IsAligned(dy.raw());
    Launch(context, aligned ? ClampBackwardKernel<kPack, T> : ClampBackwardKernel<1, T>,
           GridOf(context, x.numel(), aligned ? kPack : 1), kThreads, 0, limit, Data<const T>(x),
           Data<T>(dy), x.numel());
  });
}

void AddBiasCuda(const Tensor& bias, Tensor& x, const Tensor& addend) {
  const LaunchContext context = ContextOf(x.device());
  const int64_t rows = x.dim(0);
  const int64_t columns = x.dim(1);
  DispatchFloat(x.dtype(), [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    const T* added = Data<const T>(addend);
    const bool aligned = RowsAligned<T>(columns, bias.raw(), x.raw(), added);
    const int64_t per_warp = int64_t{kWarpSize} * (aligned ? kPackSize<T> : 1);
    const auto across = static_cast<unsigned>((columns + per_warp - 1) / per_warp);
    // Rows fill what the columns leave of the GPU.
    const int down = std::max(1, kBlocksPerMultiprocessor * context.multiprocessors /
                                     std::max(1, static_cast<int>(across)));
    const dim3 grid(
        across, static_cast<unsigned>(std::min<int64_t>(down, (rows + kBiasRows - 1) / kBiasRows)));
    Launch(context, aligned ? AddBiasKernel<kPackSize<T>, T> : AddBiasKernel<1, T>, grid,
           dim3(kWarpSize, kBiasRows), 0, Data<const T>(bias), added, Data<T>(x), rows, columns);
  });
}

}  // namespace

void FillElementwiseOps(CudaOps& ops) {
  ops.add = AddCuda;
  ops.copy = CopyCuda;
  ops.copy_columns = CopyColumnsCuda;
  ops.fill = FillCuda;
  ops.apply_soft_cap = SoftCapCuda;
  ops.clamp = ClampCuda;
  ops.clamp_backward = ClampBackwardCuda;
  ops.add_bias = AddBiasCuda;
}

}  // namespace trimtab
