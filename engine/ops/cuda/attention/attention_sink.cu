// Attention sinks: a warp per row, and for their gradients a block per head, which adds in one
// order. Contract in engine/ops/attention/attention_sink.h.
#include "engine/ops/cuda/elementwise/fill.h"
#include "engine/ops/cuda/kernel.h"

namespace trimtab {
namespace {

constexpr int kWarps = 8;
constexpr int kThreads = kWarps * kWarpSize;
constexpr int kBlocksPerMultiprocessor = 8;

// Rows are numbered as in memory: token, then head.
struct SinkShape {
  int64_t tokens;
  int64_t sequence;
  int heads;
  int value_size;

  explicit SinkShape(const AttentionShape& s)
      : tokens(s.tokens()),
        sequence(s.rows.sequence),
        heads(static_cast<int>(s.heads)),
        value_size(static_cast<int>(s.value_size())) {}

  /// Of a row in log_sum_exp.
  TRIMTAB_HOST_DEVICE int64_t Statistic(int64_t token, int head) const {
    return (token / sequence * heads + head) * sequence + token % sequence;
  }
};

template <typename T>
__global__ void __launch_bounds__(kThreads)
    SinkKernel(SinkShape s, const T* __restrict__ sinks, T* out, float* log_sum_exp) {
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const int64_t warps = int64_t{gridDim.x} * kWarps;
  for (int64_t row = (int64_t{blockIdx.x} * kThreads + threadIdx.x) / kWarpSize;
       row < s.tokens * s.heads; row += warps) {
    const int head = static_cast<int>(row % s.heads);
    float* statistic = log_sum_exp + s.Statistic(row / s.heads, head);
    const AttentionMerge merge = MergeAttention(*statistic, ToFloat(sinks[head]));
    for (int d = lane; d < s.value_size; d += kWarpSize) {
      T& value = out[row * s.value_size + d];
      value = FromFloat<T>(ToFloat(value) * merge.keep);
    }
    __syncwarp();  // all lanes have read it
    if (lane == 0) *statistic = merge.log_sum_exp;
  }
}

template <typename T, typename G>
__global__ void __launch_bounds__(kThreads)
    SinkBackwardKernel(SinkShape s, const T* __restrict__ sinks, const T* __restrict__ out,
                       const float* __restrict__ log_sum_exp, const T* __restrict__ dout, G* dsinks,
                       bool accumulate) {
  const int head = static_cast<int>(blockIdx.x);
  const float sink = ToFloat(sinks[head]);
  double sum = 0.0;
  for (int64_t token = threadIdx.x; token < s.tokens; token += kThreads) {
    const int64_t at = (token * s.heads + head) * s.value_size;
    float dot = 0.0f;
    for (int d = 0; d < s.value_size; ++d) dot += ToFloat(out[at + d]) * ToFloat(dout[at + d]);
    sum += static_cast<double>(Exp(sink - log_sum_exp[s.Statistic(token, head)]) * dot);
  }
  sum = BlockReduce(sum, SumOf{}, 0.0);
  if (threadIdx.x != 0) return;
  const float before = accumulate ? ToFloat(dsinks[head]) : 0.0f;
  dsinks[head] = FromFloat<G>(before - static_cast<float>(sum));
}

void AttentionSinkCuda(const AttentionShape& shape, const Tensor& sinks, Tensor& out,
                       Tensor& log_sum_exp) {
  const LaunchContext context = ContextOf(out.device());
  DispatchFloat(out.dtype(), [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    Launch(context, SinkKernel<T>,
           dim3(GridFor(context, shape.tokens() * shape.heads, kWarps, kBlocksPerMultiprocessor)),
           dim3(kThreads), 0, SinkShape(shape), Data<const T>(sinks), Data<T>(out),
           log_sum_exp.f32());
  });
}

void AttentionSinkBackwardCuda(const AttentionShape& shape, const Tensor& sinks, const Tensor& out,
                               const Tensor& log_sum_exp, const Tensor& dout, Tensor& dsinks,
                               bool accumulate) {
  const LaunchContext context = ContextOf(out.device());
  DispatchFloat(out.dtype(), [&](auto* type) {
    DispatchFloat(dsinks.dtype(), [&](auto* gradient) {
      using T = std::remove_pointer_t<decltype(type)>;
      using G = std::remove_pointer_t<decltype(gradient)>;
      Launch(context, SinkBackwardKernel<T, G>, dim3(static_cast<unsigned>(shape.heads)),
             dim3(kThreads), 0, SinkShape(shape), Data<const T>(sinks), Data<const T>(out),
             log_sum_exp.f32(), Data<const T>(dout), Data<G>(dsinks), accumulate);
    });
  });
}

}  // namespace

void FillAttentionSinkOps(CudaOps& ops) {
  ops.attention_sink = AttentionSinkCuda;
  ops.attention_sink_backward = AttentionSinkBackwardCuda;
}

}  // namespace trimtab
