// A router's ops, a thread per token. Contract in engine/ops/moe/router.h.
#include "engine/ops/cuda/elementwise/fill.h"
#include "engine/ops/cuda/kernel.h"
#include "engine/ops/moe/router_row.h"

namespace trimtab {
namespace {

constexpr int kThreads = 128;
constexpr int kBlocksPerMultiprocessor = 8;

// Calls body(row) with this thread's rows.
template <typename Body>
__device__ __forceinline__ void ForEachRow(int64_t rows, Body body) {
  const int64_t stride = int64_t{gridDim.x} * kThreads;
  for (int64_t row = int64_t{blockIdx.x} * kThreads + threadIdx.x; row < rows; row += stride) {
    body(row);
  }
}

dim3 GridOf(const LaunchContext& context, int64_t rows) {
  return dim3(GridFor(context, rows, kThreads, kBlocksPerMultiprocessor));
}

__global__ void __launch_bounds__(kThreads)
    ChooseKernel(const float* __restrict__ logits, const float* __restrict__ bias,
                 RouterOptions options, int64_t rows, int64_t experts, int32_t* choice) {
  ForEachRow(rows, [&](int64_t row) {
    ChooseRow(logits + row * experts, bias, options, experts, choice + row * options.topk);
  });
}

__global__ void __launch_bounds__(kThreads)
    ChooseInTurnKernel(RowPositions positions, int64_t rows, int64_t experts, int64_t topk,
                       int32_t* choice) {
  ForEachRow(rows, [&](int64_t row) {
    ChooseRowInTurn(positions, row, experts, topk, choice + row * topk);
  });
}

__global__ void __launch_bounds__(kThreads)
    WeightsKernel(const float* __restrict__ logits, const int32_t* __restrict__ choice,
                  RouterOptions options, int64_t rows, int64_t experts, float* weights) {
  ForEachRow(rows, [&](int64_t row) {
    const int64_t first = row * options.topk;
    WeightsOfRow(logits + row * experts, choice + first, options, experts, weights + first);
  });
}

__global__ void __launch_bounds__(kThreads)
    WeightsBackwardKernel(const float* __restrict__ logits, const int32_t* __restrict__ choice,
                          const float* __restrict__ dweights, RouterOptions options, int64_t rows,
                          int64_t experts, float* dlogits) {
  ForEachRow(rows, [&](int64_t row) {
    const int64_t first = row * options.topk;
    WeightsOfRowBackward(logits + row * experts, choice + first, dweights + first, options, experts,
                         dlogits + row * experts);
  });
}

__global__ void __launch_bounds__(kThreads)
    LossBackwardKernel(const float* __restrict__ logits, const float* __restrict__ load,
                       RouterLossOptions options, const float* scale, int64_t run, int64_t rows,
                       int64_t experts, float* dlogits, float* losses) {
  ForEachRow(rows, [&](int64_t row) {
    LossOfRowBackward(logits + row * experts, load + row / run * experts, options, experts, *scale,
                      dlogits + row * experts, losses + row, rows);
  });
}

// A block per run: counts in shared memory, as whole numbers, whose sum knows no order.
__global__ void __launch_bounds__(kThreads)
    CountKernel(const int32_t* __restrict__ choice, int64_t run_choices, int64_t experts,
                bool accumulate, float* counts) {
  int* const shared = SharedMemory<int>();
  for (int64_t e = threadIdx.x; e < experts; e += kThreads) shared[e] = 0;
  __syncthreads();
  const int32_t* chosen = choice + int64_t{blockIdx.x} * run_choices;
  for (int64_t i = threadIdx.x; i < run_choices; i += kThreads) {
    if (chosen[i] >= 0) atomicAdd(&shared[chosen[i]], 1);
  }
  __syncthreads();
  float* of_run = counts + int64_t{blockIdx.x} * experts;
  for (int64_t e = threadIdx.x; e < experts; e += kThreads) {
    of_run[e] = (accumulate ? of_run[e] : 0.0f) + static_cast<float>(shared[e]);
  }
}

__global__ void __launch_bounds__(kThreads)
    ExpertBiasKernel(const float* __restrict__ counts, int64_t experts, float rate, float* bias) {
  float total = 0;
  for (int64_t e = 0; e < experts; ++e) total += counts[e];
  for (int64_t e = threadIdx.x; e < experts; e += kThreads) {
    bias[e] += ExpertBiasStep(total, experts, counts[e], rate);
  }
}

void RouterChooseCuda(const Tensor& logits, const Tensor& bias, const RouterOptions& options,
                      Tensor& choice) {
  const LaunchContext context = ContextOf(choice.device());
  const int64_t rows = logits.dim(0);
  Launch(context, ChooseKernel, GridOf(context, rows), kThreads, 0, logits.f32(),
         Data<const float>(bias), options, rows, logits.dim(1), choice.i32());
}

void RouterChooseInTurnCuda(const RowLayout& layout, int64_t experts, Tensor& choice) {
  const LaunchContext context = ContextOf(choice.device());
  const int64_t rows = choice.dim(0);
  Launch(context, ChooseInTurnKernel, GridOf(context, rows), kThreads, 0, layout.view(), rows,
         experts, choice.dim(1), choice.i32());
}

void RouterWeightsCuda(const Tensor& logits, const Tensor& choice, const RouterOptions& options,
                       Tensor& weights) {
  const LaunchContext context = ContextOf(choice.device());
  const int64_t rows = logits.dim(0);
  Launch(context, WeightsKernel, GridOf(context, rows), kThreads, 0, logits.f32(), choice.i32(),
         options, rows, logits.dim(1), weights.f32());
}

void RouterWeightsBackwardCuda(const Tensor& logits, const Tensor& choice, const Tensor& dweights,
                               const RouterOptions& options, Tensor& dlogits) {
  const LaunchContext context = ContextOf(choice.device());
  const int64_t rows = logits.dim(0);
  Launch(context, WeightsBackwardKernel, GridOf(context, rows), kThreads, 0, logits.f32(),
         choice.i32(), dweights.f32(), options, rows, logits.dim(1), dlogits.f32());
}

void RouterLossBackwardCuda(const Tensor& logits, const Tensor& load,
                            const RouterLossOptions& options, const Tensor& gradient_scale,
                            Tensor& dlogits, Tensor& losses) {
  const LaunchContext context = ContextOf(logits.device());
  const int64_t rows = logits.dim(0);
  Launch(context, LossBackwardKernel, GridOf(context, rows), kThreads, 0, logits.f32(), load.f32(),
         options, gradient_scale.f32(), rows / load.dim(0), rows, logits.dim(1), dlogits.f32(),
         losses.f32());
}

void CountChoicesCuda(const Tensor& choice, Tensor& counts, bool accumulate) {
  const LaunchContext context = ContextOf(choice.device());
  const int64_t runs = counts.dim(0);
  const int64_t experts = counts.dim(1);
  Launch(context, CountKernel, dim3(static_cast<unsigned>(runs)), kThreads,
         static_cast<size_t>(experts) * sizeof(int), choice.i32(), choice.numel() / runs, experts,
         accumulate, counts.f32());
}

void UpdateExpertBiasCuda(const Tensor& counts, float rate, Tensor& bias) {
  const LaunchContext context = ContextOf(bias.device());
  Launch(context, ExpertBiasKernel, dim3(1), kThreads, 0, counts.f32(), bias.numel(), rate,
         bias.f32());
}

}  // namespace

void FillRouterOps(CudaOps& ops) {
  ops.router_choose = RouterChooseCuda;
  ops.router_choose_in_turn = RouterChooseInTurnCuda;
  ops.router_weights = RouterWeightsCuda;
  ops.router_weights_backward = RouterWeightsBackwardCuda;
  ops.router_loss_backward = RouterLossBackwardCuda;
  ops.count_choices = CountChoicesCuda;
  ops.update_expert_bias = UpdateExpertBiasCuda;
}

}  // namespace trimtab
