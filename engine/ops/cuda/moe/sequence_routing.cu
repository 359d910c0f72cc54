// A router's decisions over whole sequences. Contract in engine/ops/moe/sequence_routing.h.
#include "engine/ops/cuda/elementwise/fill.h"
#include "engine/ops/cuda/kernel.h"
#include "engine/ops/moe/sequence_routing.h"

namespace trimtab {
namespace {

constexpr int kThreads = 256;

// Keeps a row that nothing weighs from dividing by zero.
constexpr float kLeast = 1e-8f;

// A block per sequence. Experts' factors and their changes in shared memory; of each token the
// highest logit and its factor in scratch [2, B*T]. Sums run in the order of experts and positions.
__global__ void __launch_bounds__(kThreads)
    SinkhornKernel(SequenceRows sequences, const float* __restrict__ logits, int64_t experts,
                   float* scratch, int32_t* choice) {
  float* const factors = SharedMemory<float>();
  float* const changes = factors + experts;
  __shared__ bool done;
  const int64_t b = blockIdx.x;
  const int64_t tokens = sequences.sequence;
  float* const highest = scratch + b * tokens;
  float* const token_factors = scratch + sequences.rows() + b * tokens;
  const auto row_of = [&](int64_t p) { return logits + sequences.row(b, p) * experts; };
  for (int64_t e = threadIdx.x; e < experts; e += kThreads) factors[e] = 1.0f;
  for (int64_t p = threadIdx.x; p < tokens; p += kThreads) {
    const float* row = row_of(p);
    float max = row[0];
    for (int64_t e = 1; e < experts; ++e) max = row[e] > max ? row[e] : max;
    highest[p] = max;
  }
  const float token_share = 1.0f / static_cast<float>(tokens);
  const float expert_share = 1.0f / static_cast<float>(experts);
  for (int round = 0; round < kSinkhornRounds; ++round) {
    __syncthreads();
    for (int64_t p = threadIdx.x; p < tokens; p += kThreads) {
      const float* row = row_of(p);
      float weight = 0;
      for (int64_t e = 0; e < experts; ++e) weight += factors[e] * Exp(row[e] - highest[p]);
      token_factors[p] = token_share / (weight + kLeast);
    }
    __syncthreads();
    for (int64_t e = threadIdx.x; e < experts; e += kThreads) {
      float sum = 0;
      for (int64_t p = 0; p < tokens; ++p) {
        sum += token_factors[p] * Exp(row_of(p)[e] - highest[p]);
      }
      const float next = expert_share / (sum + kLeast);
      changes[e] = next > factors[e] ? next - factors[e] : factors[e] - next;
      factors[e] = next;
    }
    __syncthreads();
    if (threadIdx.x == 0) {
      float change = 0;
      for (int64_t e = 0; e < experts; ++e) change += changes[e];
      done = change * expert_share <= kSinkhornTolerance;
    }
    __syncthreads();
    if (done) break;
  }
  for (int64_t p = threadIdx.x; p < tokens; p += kThreads) {
    const float* row = row_of(p);
    int64_t best = 0;
    float best_value = factors[0] * Exp(row[0] - highest[p]);
    for (int64_t e = 1; e < experts; ++e) {
      const float value = factors[e] * Exp(row[e] - highest[p]);
      if (value <= best_value) continue;
      best = e;
      best_value = value;
    }
    choice[sequences.row(b, p)] = static_cast<int32_t>(best);
  }
}

// A thread per choice counts those of its sequence that its expert would rather keep.
__global__ void __launch_bounds__(kThreads)
    DropKernel(SequenceRows sequences, int64_t topk, int64_t capacity, DropPolicy policy,
               const int32_t* __restrict__ choice, const float* __restrict__ weights,
               int32_t* kept) {
  const int64_t choices = sequences.rows() * topk;
  const int64_t stride = int64_t{gridDim.x} * kThreads;
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < choices; i += stride) {
    const int64_t b = i / topk / sequences.sequence;
    const int64_t position = i / topk % sequences.sequence;
    const int64_t own = sequences.row(b, position) * topk + i % topk;
    int64_t better = 0;
    for (int64_t p = 0; p < sequences.sequence; ++p) {
      const int64_t first = sequences.row(b, p) * topk;
      for (int64_t c = first; c < first + topk; ++c) {
        if (choice[c] != choice[own]) continue;
        const bool by_weight = policy == DropPolicy::kProbability && weights[c] != weights[own];
        better += (by_weight ? weights[c] > weights[own] : p < position) ? 1 : 0;
      }
    }
    kept[own] = better < capacity ? choice[own] : -1;
  }
}

void SinkhornChooseCuda(const SequenceRows& sequences, const Tensor& logits, Tensor& choice) {
  const LaunchContext context = ContextOf(choice.device());
  const int64_t experts = logits.dim(1);
  Launch(context, SinkhornKernel, dim3(static_cast<unsigned>(sequences.batch)), kThreads,
         2 * static_cast<size_t>(experts) * sizeof(float), sequences, logits.f32(), experts,
         context.Scratch<float>(2 * sequences.rows()), choice.i32());
}

void DropTokensCuda(const SequenceRows& sequences, int64_t /*experts*/, int64_t capacity,
                    DropPolicy policy, const Tensor& choice, const Tensor& weights, Tensor& kept) {
  const LaunchContext context = ContextOf(choice.device());
  constexpr int kBlocksPerMultiprocessor = 8;
  Launch(context, DropKernel,
         dim3(GridFor(context, choice.numel(), kThreads, kBlocksPerMultiprocessor)), kThreads, 0,
         sequences, choice.dim(1), capacity, policy, choice.i32(), weights.f32(), kept.i32());
}

}  // namespace

void FillSequenceRoutingOps(CudaOps& ops) {
  ops.sinkhorn_choose = SinkhornChooseCuda;
  ops.drop_tokens = DropTokensCuda;
}

}  // namespace trimtab
