// Sums over whole tensors, in double, in an order that depends on the length alone: every chunk of
// the tensor is one block's, the partial sums meet in scratch, and one block adds them up.
#include "engine/ops/cuda/elementwise/fill.h"
#include "engine/ops/cuda/kernel.h"

namespace trimtab {
namespace {

constexpr int kThreads = 256;
constexpr int kUnroll = 4;
// Eight blocks on each of 132 multiprocessors run at once: nearly all chunks of a long tensor.
constexpr int64_t kMaxChunks = 1024;
constexpr int64_t kSmallestChunk = 16384;

struct Identity {
  __device__ __forceinline__ double operator()(float x) const { return static_cast<double>(x); }
};
struct Square {
  __device__ __forceinline__ double operator()(float x) const {
    return static_cast<double>(x) * static_cast<double>(x);
  }
};

// partial[block] = the sum of term(x) over the block's chunk. Loads are N wide; which thread adds
// which element does not depend on N, so neither does the result.
template <int N, typename T, typename Term>
__global__ void __launch_bounds__(kThreads)
    PartialSums(const T* __restrict__ x, int64_t n, int64_t chunk, double* partial) {
  constexpr int kGroup = kPackSize<T>;
  const int64_t begin = int64_t{blockIdx.x} * chunk;
  const int64_t end = begin + chunk < n ? begin + chunk : n;
  double sum = 0;
  constexpr int64_t kStride = int64_t{kThreads} * kGroup;
  for (int64_t first = begin + threadIdx.x * kGroup; first < end; first += kUnroll * kStride) {
    float values[kUnroll][kGroup];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const int64_t start = first + u * kStride;
      if (N == kGroup && start + kGroup <= end) {
        LoadFloats<kGroup>(x + start, values[u]);
      } else {
#pragma unroll
        for (int i = 0; i < kGroup; ++i) {
          values[u][i] = start + i < end ? ToFloat(x[start + i]) : 0.0f;
        }
      }
    }
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
#pragma unroll
      for (int i = 0; i < kGroup; ++i) sum += Term{}(values[u][i]);
    }
  }
  sum = BlockSum(sum);
  if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}

// sum = (before +) all partial sums.
__global__ void __launch_bounds__(kThreads)
    TotalSum(const double* partial, int chunks, bool accumulate, float* sum) {
  double total = 0;
  for (int i = static_cast<int>(threadIdx.x); i < chunks; i += kThreads) total += partial[i];
  total = BlockSum(total);
  if (threadIdx.x == 0) *sum = static_cast<float>(accumulate ? *sum + total : total);
}

template <typename Term, typename T>
void SumTerms(const Tensor& x, Tensor& sum, bool accumulate) {
  const LaunchContext context = ContextOf(sum.device());
  const int64_t n = x.numel();
  constexpr int64_t kTurn = int64_t{kThreads} * kPackSize<T> * kUnroll;
  const int64_t even = (n + kMaxChunks - 1) / kMaxChunks;
  const int64_t chunk = std::max(kSmallestChunk, (even + kTurn - 1) / kTurn * kTurn);
  const auto chunks = static_cast<int>((n + chunk - 1) / chunk);
  auto* partial = context.Scratch<double>(kMaxChunks);
  Launch(context, IsAligned(x.raw()) ? PartialSums<kPackSize<T>, T, Term> : PartialSums<1, T, Term>,
         chunks, kThreads, 0, Data<const T>(x), n, chunk, partial);
  Launch(context, TotalSum, 1, kThreads, 0, partial, chunks, accumulate, Data<float>(sum));
}

void SumCuda(const Tensor& x, Tensor& sum, bool accumulate) {
  SumTerms<Identity, float>(x, sum, accumulate);
}

void SumSquaresCuda(const Tensor& x, Tensor& sum) {
  DispatchFloat(x.dtype(), [&](auto* type) {
    SumTerms<Square, std::remove_pointer_t<decltype(type)>>(x, sum, false);
  });
}

}  // namespace

void FillReductionOps(CudaOps& ops) {
  ops.sum = SumCuda;
  ops.sum_squares = SumSquaresCuda;
}

}  // namespace trimtab
