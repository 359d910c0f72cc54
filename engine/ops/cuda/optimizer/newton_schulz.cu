// Element-wise work of Newton-Schulz iterations. Contract in engine/ops/optimizer/newton_schulz.h.
#include "engine/ops/cuda/elementwise/fill.h"
#include "engine/ops/cuda/kernel.h"

namespace trimtab {
namespace {

constexpr int kElementThreads = 256;
constexpr int kBlocksPerMultiprocessor = 8;

template <typename T>
__global__ void NormalizeKernel(const float* squares, float epsilon, T* x, int64_t n) {
  const float factor = NormFactor(*squares, epsilon);
  const int64_t stride = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < n; i += stride) {
    x[i] = FromFloat<T>(ToFloat(x[i]) * factor);
  }
}

template <typename T>
__global__ void QuinticKernel(QuinticFactors factors, const T* gram, T* squared, int64_t rows) {
  const int64_t stride = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < rows * rows; i += stride) {
    const float diagonal = i % (rows + 1) == 0 ? factors.a : 0.0f;
    const float value = factors.b * ToFloat(gram[i]) + factors.c * ToFloat(squared[i]);
    squared[i] = FromFloat<T>(value + diagonal);
  }
}

void NormalizeCuda(const Tensor& squares, float epsilon, Tensor& x) {
  const LaunchContext context = ContextOf(x.device());
  DispatchFloat(x.dtype(), [&](auto* value) {
    using T = std::remove_pointer_t<decltype(value)>;
    Launch(context, NormalizeKernel<T>,
           dim3(GridFor(context, x.numel(), kElementThreads, kBlocksPerMultiprocessor)),
           dim3(kElementThreads), 0, Data<float>(squares), epsilon, Data<T>(x), x.numel());
  });
}

void QuinticCuda(const QuinticFactors& factors, const Tensor& gram, Tensor& squared) {
  const LaunchContext context = ContextOf(squared.device());
  DispatchFloat(squared.dtype(), [&](auto* value) {
    using T = std::remove_pointer_t<decltype(value)>;
    Launch(context, QuinticKernel<T>,
           dim3(GridFor(context, squared.numel(), kElementThreads, kBlocksPerMultiprocessor)),
           dim3(kElementThreads), 0, factors, Data<T>(gram), Data<T>(squared), squared.dim(0));
  });
}

}  // namespace

void FillNewtonSchulzOps(CudaOps& ops) {
  ops.normalize = NormalizeCuda;
  ops.quintic = QuinticCuda;
}

}  // namespace trimtab
