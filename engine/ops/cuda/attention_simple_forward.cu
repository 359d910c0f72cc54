#include "engine/ops/cuda/attention_simple.h"

namespace trimtab {
namespace {

using namespace simple_attention;

template <int kRows>
constexpr int64_t ForwardShared(int64_t head_size) {
  return (3 * kRows * (head_size + 1) + kRows * (kRows + 1) + 3 * kRows) * int64_t{sizeof(float)};
}
template <typename T, int kRows>
__global__ void __launch_bounds__(kThreads)
    ForwardKernel(AttentionGeometry s, const T* qkv, T* out, float* log_sum_exp) {
  const int tile = kRows * TileStride(s.head_size);
  float* queries = SharedMemory<float>();
  float* keys = queries + tile;  // then values
  float* result = keys + tile;
  float* scores = result + tile;
  float* highest = scores + kRows * (kRows + 1);
  float* sum = highest + kRows;
  float* correction = sum + kRows;

  const int first = static_cast<int>(gridDim.x - 1 - blockIdx.x) * kRows;
  const int head = static_cast<int>(blockIdx.y);
  const int batch = static_cast<int>(blockIdx.z);
  const auto thread = static_cast<int>(threadIdx.x);
  LoadTile<kRows>(queries, qkv + s.Query(batch, head), s.qkv_stride, first, s);
  ZeroTile<kRows>(result, s.head_size);
  if (thread < kRows) {
    highest[thread] = -INFINITY;
    sum[thread] = 0.0f;
  }
  for (int key = 0; key <= first; key += kRows) {
    __syncthreads();
    LoadTile<kRows>(keys, qkv + s.Key(batch, head / s.group), s.qkv_stride, key, s);
    __syncthreads();
    DotRows<kRows>(queries, keys, s.head_size, [&](int i, int j, float dot) {
      scores[i * (kRows + 1) + j] = key + j > first + i ? -INFINITY : dot * s.scale;
    });
    __syncthreads();
    LoadTile<kRows>(keys, qkv + s.Value(batch, head / s.group), s.qkv_stride, key, s);
    if (thread < kRows) {
      float* row = scores + thread * (kRows + 1);
      float top = highest[thread];
      for (int j = 0; j < kRows; ++j) top = fmaxf(top, row[j]);
      float row_sum = 0.0f;
      for (int j = 0; j < kRows; ++j) {
        row[j] = Exp(row[j] - top);
        row_sum += row[j];
      }
      correction[thread] = Exp(highest[thread] - top);
      sum[thread] = sum[thread] * correction[thread] + row_sum;
      highest[thread] = top;
    }
    __syncthreads();
    AddProduct<kRows, false>(result, correction, scores, keys, s.head_size);
  }
  __syncthreads();
  if (thread < kRows) {
    if (first + thread < s.sequence)
      log_sum_exp[s.Row(batch, head) + first + thread] = highest[thread] + logf(sum[thread]);
    sum[thread] = 1.0f / sum[thread];
  }
  __syncthreads();
  for (int i = thread; i < kRows * s.head_size; i += kThreads)
    result[i / s.head_size * TileStride(s.head_size) + i % s.head_size] *= sum[i / s.head_size];
  __syncthreads();
  StoreTile<kRows>(result, out + s.Out(batch, head), s.out_stride, first, s, 1.0f);
}

template <typename T, int kRows>
void Forward(const LaunchContext& context, const AttentionForwardCall& call) {
  const AttentionShape& s = call.shape;
  Launch(context, ForwardKernel<T, kRows>, AttentionGrid(s, kRows, s.heads), dim3(kThreads),
         static_cast<size_t>(ForwardShared<kRows>(s.head_size)), AttentionGeometry(s),
         static_cast<const T*>(call.qkv), static_cast<T*>(call.out), call.log_sum_exp);
}

static_assert(ForwardShared<4>(kMaxSimpleHeadSize) <= kSharedLimit);

}  // namespace

void AttentionForwardSimple(const LaunchContext& context, const AttentionForwardCall& call) {
  CheckHeadSize(call.shape);
  DispatchFloat(call.dtype, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    if (ForwardShared<32>(call.shape.head_size) <= kSharedLimit) {
      Forward<T, 32>(context, call);
    } else {
      Forward<T, 4>(context, call);
    }
  });
}

}  // namespace trimtab
