// Clipping by the global norm: everything stays on the device, so captured work can hold it.
#include "engine/ops/cuda/elementwise/fill.h"
#include "engine/ops/cuda/kernel.h"

namespace trimtab {
namespace {

constexpr int kThreads = 256;

__global__ void __launch_bounds__(kThreads)
    ClipKernel(const float* __restrict__ sums, int64_t n, float max_norm, float* scalars) {
  double total = 0;
  for (int64_t i = threadIdx.x; i < n; i += kThreads) total += static_cast<double>(sums[i]);
  total = BlockSum(total);
  if (threadIdx.x == 0) {
    ClipByNorm(total, max_norm, scalars[kLossScale], scalars[kGradientNorm],
               scalars[kGradientScale], scalars[kApply]);
  }
}

void ClipCuda(const Tensor& sums, float max_norm, Tensor& scalars) {
  const LaunchContext context = ContextOf(sums.device());
  Launch(context, ClipKernel, 1, kThreads, 0, Data<const float>(sums), sums.numel(), max_norm,
         Data<float>(scalars));
}

}  // namespace

void FillClipOps(CudaOps& ops) { ops.clip = ClipCuda; }

}  // namespace trimtab
