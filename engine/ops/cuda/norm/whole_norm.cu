// RMSNorm of all query heads and of all key heads. Contract in engine/ops/norm/whole_norm.h.
#include "engine/ops/cuda/column_sums.h"
#include "engine/ops/cuda/elementwise/fill.h"
#include "engine/ops/cuda/norm/norm_forward.h"

namespace trimtab {
namespace {

constexpr int kThreads = 256;

// A norm's columns in a token's qkv.
struct PartShape {
  int64_t begin = 0;
  int64_t columns = 0;
  float count = 1.0f;  // of all ranks
};

struct WholeShape {
  int64_t tokens;
  int64_t width;  // of a token's qkv
  PartShape parts[2];
  float epsilon;
  float weight_offset;

  WholeShape(const AttentionShape& s, const WholeNorms& norms)
      : tokens(s.tokens()),
        width(s.qkv_size()),
        epsilon(static_cast<float>(norms.options.epsilon)),
        weight_offset(OffsetOf(norms.options.weight_plus_one)) {
    const int64_t queries = s.heads * s.head_size;
    parts[0] = {0, queries, static_cast<float>(norms.query_count)};
    parts[1] = {queries, s.kv_heads * s.head_size, static_cast<float>(norms.key_count)};
  }

  TRIMTAB_HOST_DEVICE float Rstd(const float* squares, int64_t token, int part) const {
    return 1.0f / sqrtf(squares[2 * token + part] / parts[part].count + epsilon);
  }
};

// A block per token.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    SquaresKernel(WholeShape s, const T* qkv, float* squares) {
  for (int64_t token = blockIdx.x; token < s.tokens; token += gridDim.x) {
    for (int part = 0; part < 2; ++part) {
      const T* x = qkv + token * s.width + s.parts[part].begin;
      float sum = 0.0f;
      for (int64_t i = threadIdx.x; i < s.parts[part].columns; i += kThreads) {
        sum += ToFloat(x[i]) * ToFloat(x[i]);
      }
      sum = BlockSum(sum);
      if (threadIdx.x == 0) squares[2 * token + part] = sum;
    }
  }
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    ForwardKernel(WholeShape s, const T* qkv, const T* query_weight, const T* key_weight,
                  const float* squares, T* out) {
  const int64_t queries = s.parts[0].columns;
  const int64_t normed = queries + s.parts[1].columns;
  for (int64_t token = blockIdx.x; token < s.tokens; token += gridDim.x) {
    const float query_rstd = s.Rstd(squares, token, 0);
    const float key_rstd = s.Rstd(squares, token, 1);
    const T* x = qkv + token * s.width;
    T* y = out + token * s.width;
    for (int64_t i = threadIdx.x; i < s.width; i += kThreads) {
      if (i >= normed) {
        y[i] = x[i];
        continue;
      }
      const float weight = ToFloat(i < queries ? query_weight[i] : key_weight[i - queries]);
      const float rstd = i < queries ? query_rstd : key_rstd;
      y[i] = FromFloat<T>(ToFloat(x[i]) * rstd * (weight + s.weight_offset));
    }
  }
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    SlopesKernel(WholeShape s, const T* qkv, const T* query_weight, const T* key_weight,
                 const float* squares, const T* dqkv, float* slopes) {
  for (int64_t token = blockIdx.x; token < s.tokens; token += gridDim.x) {
    for (int part = 0; part < 2; ++part) {
      const int64_t at = token * s.width + s.parts[part].begin;
      const T* weight = part == 0 ? query_weight : key_weight;
      const float rstd = s.Rstd(squares, token, part);
      float sum = 0.0f;
      for (int64_t i = threadIdx.x; i < s.parts[part].columns; i += kThreads) {
        sum += ToFloat(dqkv[at + i]) * (ToFloat(weight[i]) + s.weight_offset) *
               (ToFloat(qkv[at + i]) * rstd);
      }
      sum = BlockSum(sum);
      if (threadIdx.x == 0) slopes[2 * token + part] = sum;
    }
  }
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    BackwardKernel(WholeShape s, const T* qkv, const T* query_weight, const T* key_weight,
                   const float* squares, const float* slopes, T* dqkv) {
  for (int64_t token = blockIdx.x; token < s.tokens; token += gridDim.x) {
    for (int part = 0; part < 2; ++part) {
      const int64_t at = token * s.width + s.parts[part].begin;
      const T* weight = part == 0 ? query_weight : key_weight;
      const float rstd = s.Rstd(squares, token, part);
      const float slope = slopes[2 * token + part] / s.parts[part].count;
      for (int64_t i = threadIdx.x; i < s.parts[part].columns; i += kThreads) {
        const float g = ToFloat(dqkv[at + i]) * (ToFloat(weight[i]) + s.weight_offset);
        dqkv[at + i] = FromFloat<T>(rstd * (g - ToFloat(qkv[at + i]) * rstd * slope));
      }
    }
  }
}

// What the weight gradient of a norm sums, for ColumnPartials: a row is a token.
template <typename T>
struct WholeWeightValues {
  WholeShape s;
  int part;
  const T* qkv;
  const T* dqkv;
  const float* squares;

  template <int kSums, int N>
  __device__ __forceinline__ void operator()(int64_t token, int64_t column,
                                             float (&v)[kSums][N]) const {
    const int64_t at = token * s.width + s.parts[part].begin + column;
    const float rstd = s.Rstd(squares, token, part);
#pragma unroll
    for (int j = 0; j < N; ++j) v[0][j] = ToFloat(dqkv[at + j]) * (ToFloat(qkv[at + j]) * rstd);
  }
};

void SquaresCuda(const AttentionShape& shape, const Tensor& qkv, Tensor& squares) {
  const LaunchContext context = ContextOf(squares.device());
  const WholeShape s(shape, {});
  DispatchFloat(qkv.dtype(), [&](auto* value) {
    using T = std::remove_pointer_t<decltype(value)>;
    Launch(context, SquaresKernel<T>, dim3(GridFor(context, s.tokens, 1, 8)), dim3(kThreads), 0, s,
           Data<const T>(qkv), Data<float>(squares));
  });
}

void ForwardCuda(const AttentionShape& shape, const Tensor& qkv, const WholeNorms& norms,
                 const Tensor& squares, Tensor& out) {
  const LaunchContext context = ContextOf(out.device());
  const WholeShape s(shape, norms);
  DispatchFloat(qkv.dtype(), [&](auto* value) {
    using T = std::remove_pointer_t<decltype(value)>;
    Launch(context, ForwardKernel<T>, dim3(GridFor(context, s.tokens, 1, 8)), dim3(kThreads), 0, s,
           Data<const T>(qkv), Data<const T>(norms.query_weight), Data<const T>(norms.key_weight),
           Data<const float>(squares), Data<T>(out));
  });
}

void SlopesCuda(const AttentionShape& shape, const Tensor& qkv, const WholeNorms& norms,
                const Tensor& squares, const Tensor& dqkv, Tensor& slopes, Tensor& dweights) {
  const LaunchContext context = ContextOf(slopes.device());
  const WholeShape s(shape, norms);
  DispatchFloat(qkv.dtype(), [&](auto* value) {
    using T = std::remove_pointer_t<decltype(value)>;
    Launch(context, SlopesKernel<T>, dim3(GridFor(context, s.tokens, 1, 8)), dim3(kThreads), 0, s,
           Data<const T>(qkv), Data<const T>(norms.query_weight), Data<const T>(norms.key_weight),
           Data<const float>(squares), Data<const T>(dqkv), Data<float>(slopes));
    DispatchGradient(dweights.dtype(), [&](auto* gradient) {
      using G = std::remove_pointer_t<decltype(gradient)>;
      for (const int part : {0, 1}) {
        const WholeWeightValues<T> values = {s, part, Data<const T>(qkv), Data<const T>(dqkv),
                                             Data<const float>(squares)};
        ColumnTargets<G> targets;
        targets.out[0] = Data<G>(dweights) + s.parts[part].begin;
        LaunchColumnSums<1, 1>(context, values, s.tokens, s.parts[part].columns, targets);
      }
    });
  });
}

void BackwardCuda(const AttentionShape& shape, const Tensor& qkv, const WholeNorms& norms,
                  const Tensor& squares, const Tensor& slopes, Tensor& dqkv) {
  const LaunchContext context = ContextOf(dqkv.device());
  const WholeShape s(shape, norms);
  DispatchFloat(qkv.dtype(), [&](auto* value) {
    using T = std::remove_pointer_t<decltype(value)>;
    Launch(context, BackwardKernel<T>, dim3(GridFor(context, s.tokens, 1, 8)), dim3(kThreads), 0, s,
           Data<const T>(qkv), Data<const T>(norms.query_weight), Data<const T>(norms.key_weight),
           Data<const float>(squares), Data<const float>(slopes), Data<T>(dqkv));
  });
}

}  // namespace

void FillWholeNormOps(CudaOps& ops) {
  ops.whole_norm_squares = SquaresCuda;
  ops.whole_norm_forward = ForwardCuda;
  ops.whole_norm_slopes = SlopesCuda;
  ops.whole_norm_backward = BackwardCuda;
}

}  // namespace trimtab
