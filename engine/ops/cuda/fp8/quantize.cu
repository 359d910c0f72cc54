// fp8: largest magnitudes, quantisation, scales. Contract in engine/ops/fp8/quantize.h.
#include "engine/ops/cuda/elementwise/fill.h"
#include "engine/ops/cuda/fp8/fp8_producer.h"

namespace trimtab {
namespace {

constexpr int kThreads = 256;
constexpr int kUnroll = 4;

template <typename T, int N>
__global__ void __launch_bounds__(kThreads) AmaxKernel(const T* x, int64_t packs, float* amax) {
  const int64_t stride = int64_t{gridDim.x} * kThreads;
  uint32_t largest = 0;
  for (int64_t first = int64_t{blockIdx.x} * kThreads + threadIdx.x; first < packs;
       first += stride * kUnroll) {
    Pack<T, N> values[kUnroll] = {};
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      if (first + u * stride < packs) values[u] = LoadPack<N>(x + (first + u * stride) * N);
    }
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
#pragma unroll
      for (int j = 0; j < N; ++j) {
        const uint32_t bits = MagnitudeBits(ToFloat(values[u][j]));
        largest = largest < bits ? bits : largest;
      }
    }
  }
  RaiseAmax(largest, amax);
}

void AmaxCuda(const Tensor& x, Tensor& amax) {
  const LaunchContext context = ContextOf(amax.device());
  DispatchFloat(x.dtype(), [&](auto* value) {
    using T = std::remove_pointer_t<decltype(value)>;
    constexpr int kN = kPackSize<T>;
    constexpr int kBlocksPerMultiprocessor = 6;
    const int64_t n = x.numel();
    const bool aligned = RowsAligned<T>(n, x.raw());
    const int64_t packs = aligned ? n / kN : n;
    Launch(context, aligned ? AmaxKernel<T, kN> : AmaxKernel<T, 1>,
           dim3(GridFor(context, packs, kThreads * kUnroll, kBlocksPerMultiprocessor)),
           dim3(kThreads), 0, Data<T>(x), packs, amax.f32());
  });
}

void QuantizeCuda(const Tensor& x, const Tensor& scale, Fp8Output& out) {
  if (x.numel() == 0) return;
  const LaunchContext context = ContextOf(scale.device());
  DispatchFloat(x.dtype(), [&](auto* value) {
    using T = std::remove_pointer_t<decltype(value)>;
    DispatchFp8(TypeOf(out), [&](auto* code) {
      using F8 = std::remove_pointer_t<decltype(code)>;
      const StoredMatrix<T> matrix = {Data<T>(x), x.dim(1)};
      LaunchProduceFp8(context, matrix, x.dim(0), x.dim(1), TargetOf<F8>(scale, out),
                       RowsAligned<T>(x.dim(1), x.raw()));
    });
  });
}

// A thread has one column of the history to itself.
__global__ void Fp8ScalesKernel(const float* fp8_max, float* amax, float* scale, float* inverse,
                                int64_t rows, int64_t count) {
  const int64_t s = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (s >= count) return;
  float largest = 0.0f;
  float above = 0.0f;  // what moves into the row: row 0 becomes 0
  for (int64_t row = 0; row < rows; ++row) {
    const float value = amax[row * count + s];
    largest = fmaxf(largest, value);
    amax[row * count + s] = above;
    above = value;
  }
  const float updated = Fp8Scale(largest, fp8_max[s], scale[s]);
  scale[s] = updated;
  inverse[s * kFp8InverseStride] = 1.0f / updated;
}

void UpdateFp8ScalesCuda(const Tensor& fp8_max, Tensor& amax, Fp8Scales& scales) {
  constexpr int kScaleThreads = 64;
  const LaunchContext context = ContextOf(amax.device());
  const int64_t count = amax.dim(1);
  const auto blocks = static_cast<unsigned>((count + kScaleThreads - 1) / kScaleThreads);
  Launch(context, Fp8ScalesKernel, dim3(blocks), dim3(kScaleThreads), 0, fp8_max.f32(), amax.f32(),
         scales.scale.f32(), scales.inverse.f32(), amax.dim(0), count);
}

}  // namespace

void FillQuantizeOps(CudaOps& ops) {
  ops.amax = AmaxCuda;
  ops.quantize = QuantizeCuda;
  ops.update_fp8_scales = UpdateFp8ScalesCuda;
}

}  // namespace trimtab
