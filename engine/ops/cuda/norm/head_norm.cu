// RMSNorm of query and key heads. Contract in engine/ops/norm/head_norm.h.
#include "engine/ops/cuda/column_sums.h"
#include "engine/ops/cuda/elementwise/fill.h"
#include "engine/ops/cuda/norm/norm_forward.h"

namespace trimtab {
namespace {

constexpr int kThreads = 256;

// Where a head lies, and whose weights it has.
struct HeadShape {
  int64_t tokens;
  int64_t width;  // of a token's qkv
  int heads;
  int kv_heads;
  int head_size;
  float weight_offset;

  HeadShape(const AttentionShape& s, bool weight_plus_one)
      : tokens(s.tokens()),
        width(s.qkv_size()),
        heads(static_cast<int>(s.heads)),
        kv_heads(static_cast<int>(s.kv_heads)),
        head_size(static_cast<int>(s.head_size)),
        weight_offset(OffsetOf(weight_plus_one)) {}

  TRIMTAB_HOST_DEVICE int normed() const { return heads + kv_heads; }
};

// A warp per head of a token, values included.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    ForwardKernel(HeadShape s, const T* qkv, const T* query_weight, const T* key_weight,
                  float epsilon, T* out, float* rstd) {
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const int64_t warps = int64_t{gridDim.x} * (kThreads / kWarpSize);
  const int64_t first = (int64_t{blockIdx.x} * kThreads + threadIdx.x) / kWarpSize;
  const int64_t per_token = s.normed() + s.kv_heads;
  for (int64_t item = first; item < s.tokens * per_token; item += warps) {
    const int64_t token = item / per_token;
    const auto head = static_cast<int>(item % per_token);
    const int64_t at = token * s.width + int64_t{head} * s.head_size;
    if (head >= s.normed()) {
      for (int i = lane; i < s.head_size; i += kWarpSize) out[at + i] = qkv[at + i];
      continue;
    }
    float squares = 0.0f;
    for (int i = lane; i < s.head_size; i += kWarpSize) {
      const float x = ToFloat(qkv[at + i]);
      squares += x * x;
    }
    squares = WarpSum(squares);
    const float scale = 1.0f / sqrtf(squares / static_cast<float>(s.head_size) + epsilon);
    if (lane == 0) rstd[token * s.normed() + head] = scale;
    const T* weight = head < s.heads ? query_weight : key_weight;
    for (int i = lane; i < s.head_size; i += kWarpSize) {
      out[at + i] =
          FromFloat<T>(ToFloat(qkv[at + i]) * scale * (ToFloat(weight[i]) + s.weight_offset));
    }
  }
}

// A warp per query or key head of a token.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    InputGradientKernel(HeadShape s, const T* qkv, const T* query_weight, const T* key_weight,
                        const float* rstd, T* dqkv) {
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const int64_t warps = int64_t{gridDim.x} * (kThreads / kWarpSize);
  const int64_t first = (int64_t{blockIdx.x} * kThreads + threadIdx.x) / kWarpSize;
  for (int64_t item = first; item < s.tokens * s.normed(); item += warps) {
    const int64_t token = item / s.normed();
    const auto head = static_cast<int>(item % s.normed());
    const int64_t at = token * s.width + int64_t{head} * s.head_size;
    const T* weight = head < s.heads ? query_weight : key_weight;
    const float scale = rstd[item];
    float sum = 0.0f;
    for (int i = lane; i < s.head_size; i += kWarpSize) {
      const float g = ToFloat(dqkv[at + i]) * (ToFloat(weight[i]) + s.weight_offset);
      sum += g * (ToFloat(qkv[at + i]) * scale);
    }
    const float slope = WarpSum(sum) / static_cast<float>(s.head_size);
    for (int i = lane; i < s.head_size; i += kWarpSize) {
      const float g = ToFloat(dqkv[at + i]) * (ToFloat(weight[i]) + s.weight_offset);
      dqkv[at + i] = FromFloat<T>(scale * (g - ToFloat(qkv[at + i]) * scale * slope));
    }
  }
}

// What the weight gradient of `heads` heads from `first_head` on sums, for ColumnPartials: a row is
// a head of a token.
template <typename T>
struct WeightGradientValues {
  HeadShape s;
  int first_head;
  int heads;
  const T* qkv;
  const T* dqkv;
  const float* rstd;

  template <int kSums, int N>
  __device__ __forceinline__ void operator()(int64_t row, int64_t column,
                                             float (&v)[kSums][N]) const {
    const int64_t token = row / heads;
    const int64_t head = first_head + row % heads;
    const int64_t at = token * s.width + head * s.head_size + column;
    const float scale = rstd[token * s.normed() + head];
#pragma unroll
    for (int j = 0; j < N; ++j) v[0][j] = ToFloat(dqkv[at + j]) * (ToFloat(qkv[at + j]) * scale);
  }
};

void ForwardCuda(const AttentionShape& shape, const Tensor& qkv, const Tensor& query_weight,
                 const Tensor& key_weight, const NormOptions& options, Tensor& out, Tensor& rstd) {
  const LaunchContext context = ContextOf(out.device());
  const HeadShape s(shape, options.weight_plus_one);
  const int64_t items = s.tokens * (s.normed() + s.kv_heads);
  DispatchFloat(qkv.dtype(), [&](auto* value) {
    using T = std::remove_pointer_t<decltype(value)>;
    Launch(context, ForwardKernel<T>, dim3(GridFor(context, items, kThreads / kWarpSize, 8)),
           dim3(kThreads), 0, s, Data<const T>(qkv), Data<const T>(query_weight),
           Data<const T>(key_weight), static_cast<float>(options.epsilon), Data<T>(out),
           Data<float>(rstd));
  });
}

void BackwardCuda(const AttentionShape& shape, const Tensor& qkv, const Tensor& query_weight,
                  const Tensor& key_weight, const Tensor& rstd, bool weight_plus_one, Tensor& dqkv,
                  Tensor& dweights) {
  const LaunchContext context = ContextOf(dqkv.device());
  const HeadShape s(shape, weight_plus_one);
  DispatchFloat(qkv.dtype(), [&](auto* value) {
    using T = std::remove_pointer_t<decltype(value)>;
    DispatchGradient(dweights.dtype(), [&](auto* gradient) {
      using G = std::remove_pointer_t<decltype(gradient)>;
      for (const bool keys : {false, true}) {
        const WeightGradientValues<T> values = {s,
                                                keys ? s.heads : 0,
                                                keys ? s.kv_heads : s.heads,
                                                Data<const T>(qkv),
                                                Data<const T>(dqkv),
                                                Data<const float>(rstd)};
        ColumnTargets<G> targets;
        targets.out[0] = Data<G>(dweights) + (keys ? s.head_size : 0);
        LaunchColumnSums<1, 1>(context, values, s.tokens * values.heads, s.head_size, targets);
      }
    });
    Launch(context, InputGradientKernel<T>,
           dim3(GridFor(context, s.tokens * s.normed(), kThreads / kWarpSize, 8)), dim3(kThreads),
           0, s, Data<const T>(qkv), Data<const T>(query_weight), Data<const T>(key_weight),
           Data<const float>(rstd), Data<T>(dqkv));
  });
}

}  // namespace

void FillHeadNormOps(CudaOps& ops) {
  ops.head_norm_forward = ForwardCuda;
  ops.head_norm_backward = BackwardCuda;
}

}  // namespace trimtab
