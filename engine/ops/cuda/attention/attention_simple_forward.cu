#include "engine/ops/cuda/attention/attention_simple.h"

namespace trimtab {
namespace {

using namespace simple_attention;

template <int kRows>
constexpr int64_t ForwardShared(int64_t head_size) {
  return (3 * kRows * (head_size + 1) + kRows * (kRows + 1) + 3 * kRows) * int64_t{sizeof(float)};
}

// Writes out and log_sum_exp; with kAdd, adds the block's keys to them.
template <typename T, typename Out, int kRows, bool kAdd>
__global__ void __launch_bounds__(kThreads)
    ForwardKernel(BlockGeometry s, const T* qkv, const T* kv, Out* out, float* log_sum_exp) {
  const int tile = kRows * TileStride(s.head_size);
  const int value_tile = kRows * TileStride(s.value_size);
  float* queries = SharedMemory<float>();
  float* keys = queries + tile;  // then values
  float* result = keys + (tile > value_tile ? tile : value_tile);
  float* scores = result + value_tile;
  float* highest = scores + kRows * (kRows + 1);
  float* sum = highest + kRows;
  float* correction = sum + kRows;

  const int first = static_cast<int>(gridDim.x - 1 - blockIdx.x) * kRows;
  const int head = static_cast<int>(blockIdx.y);
  const int batch = static_cast<int>(blockIdx.z);
  const auto thread = static_cast<int>(threadIdx.x);
  LoadTile<kRows>(queries, s.head_size, qkv + s.Query(batch, head), s.qkv_stride, first, s);
  ZeroTile<kRows>(result, s.value_size);
  if (thread < kRows) {
    highest[thread] = -INFINITY;
    sum[thread] = 0.0f;
  }
  const float slope = s.Slope(head);
  const int32_t* documents = s.Documents(batch);
  const int end = s.KeysEnd(first, kRows);
  for (int key = s.KeysBegin(documents, first, kRows); key < end; key += kRows) {
    __syncthreads();
    LoadTile<kRows>(keys, s.head_size, kv + s.Key(batch, head / s.group), s.kv_stride, key, s);
    __syncthreads();
    DotRows<kRows>(queries, keys, s.head_size, [&](int i, int j, float dot) {
      const float distance = static_cast<float>(s.Distance(first + i, key + j));
      scores[i * (kRows + 1) + j] =
          s.Sees(documents, first + i, key + j) ? s.Capped(dot) - slope * distance : -INFINITY;
    });
    __syncthreads();
    LoadTile<kRows>(keys, s.value_size, kv + s.Value(batch, head / s.group), s.kv_stride, key, s);
    if (thread < kRows) {
      float* row = scores + thread * (kRows + 1);
      float top = highest[thread];
      for (int j = 0; j < kRows; ++j) top = fmaxf(top, row[j]);
      // A window may begin after this tile: then the row has seen no key yet.
      const float shift = top == -INFINITY ? 0.0f : top;
      float row_sum = 0.0f;
      for (int j = 0; j < kRows; ++j) {
        row[j] = Exp(row[j] - shift);
        row_sum += row[j];
      }
      correction[thread] = Exp(highest[thread] - shift);
      sum[thread] = sum[thread] * correction[thread] + row_sum;
      highest[thread] = top;
    }
    __syncthreads();
    AddProduct<kRows, false>(result, correction, scores, keys, s.value_size);
  }
  __syncthreads();
  if (thread < kRows) {
    const bool valid = first + thread < s.size;
    float* row = log_sum_exp + s.Row(batch, head) + first + thread;
    AttentionMerge merge = {0.0f, 1.0f, highest[thread] + logf(sum[thread])};
    if (kAdd && valid) merge = MergeAttention(*row, merge.log_sum_exp);
    if (valid) *row = merge.log_sum_exp;
    // A window may hide all keys of a block.
    sum[thread] = sum[thread] > 0.0f ? merge.weight / sum[thread] : 0.0f;
    correction[thread] = merge.keep;
  }
  __syncthreads();
  Out* rows = out + s.Out(batch, head);
  for (int i = thread; i < kRows * s.value_size; i += kThreads) {
    const int row = i / s.value_size;
    const int d = i % s.value_size;
    float& value = result[row * TileStride(s.value_size) + d];
    value *= sum[row];
    if (kAdd && first + row < s.size) {
      value += correction[row] * ToFloat(rows[(first + row) * s.out_stride + d]);
    }
  }
  __syncthreads();
  StoreTile<kRows, false>(result, s.value_size, rows, s.out_stride, first, s, 1.0f);
}

template <bool kAdd, typename T, typename Out>
void Forward(const LaunchContext& context, const AttentionShape& shape, const BlockGeometry& s,
             const T* qkv, const T* kv, Out* out, float* log_sum_exp) {
  CheckHeadSize(shape);
  const auto launch = [&](auto rows) {
    constexpr int kRows = decltype(rows)::value;
    Launch(context, ForwardKernel<T, Out, kRows, kAdd>,
           AttentionGrid(shape, s.size, kRows, s.heads), dim3(kThreads),
           static_cast<size_t>(ForwardShared<kRows>(LargestHead(shape))), s, qkv, kv, out,
           log_sum_exp);
  };
  if (ForwardShared<32>(LargestHead(shape)) <= kSharedLimit) {
    launch(std::integral_constant<int, 32>());
  } else {
    launch(std::integral_constant<int, 4>());
  }
}

static_assert(ForwardShared<4>(kMaxSimpleHeadSize) <= kSharedLimit);

}  // namespace

void AttentionForwardSimple(const LaunchContext& context, const AttentionForwardCall& call) {
  DispatchFloat(call.dtype, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    const T* qkv = static_cast<const T*>(call.qkv);
    const T* kv = qkv + call.shape.query_size();
    Forward<false>(context, call.shape, BlockGeometry(call.shape), qkv, kv,
                   static_cast<T*>(call.out), call.log_sum_exp);
  });
}

void AttentionBlockForwardSimple(const LaunchContext& context,
                                 const AttentionBlockForwardCall& call) {
  DispatchFloat(call.dtype, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    Forward<true>(context, call.shape, BlockGeometry(call.shape, call.keys, call.block),
                  static_cast<const T*>(call.qkv), static_cast<const T*>(call.kv), call.out,
                  call.log_sum_exp);
  });
}

}  // namespace trimtab
