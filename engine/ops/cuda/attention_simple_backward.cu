#include "engine/ops/cuda/attention_simple.h"

namespace trimtab {
namespace {

using namespace simple_attention;

template <int kRows>
constexpr int64_t BackwardShared(int64_t head_size) {
  return (6 * kRows * (head_size + 1) + 2 * kRows * (kRows + 1)) * int64_t{sizeof(float)};
}

// Probabilities and gradients of the scores of one tile of queries against one of keys.
template <typename T, int kRows>
__device__ void ScoreGradients(const AttentionGeometry& s, const AttentionBackwardPointers<T>& p,
                               int64_t row, int first_query, int first_key, const float* queries,
                               const float* keys, const float* values, const float* douts,
                               float* probabilities, float* dscores) {
  DotRows<kRows>(queries, keys, s.head_size, [&](int i, int j, float dot) {
    const int query = first_query + i;
    const bool visible = first_key + j <= query && query < s.sequence;
    probabilities[i * (kRows + 1) + j] =
        visible ? Exp(dot * s.scale - p.log_sum_exp[row + query]) : 0.0f;
  });
  // The same thread computes both of a pair.
  DotRows<kRows>(douts, values, s.head_size, [&](int i, int j, float dot) {
    const int query = first_query + i;
    const float row_sum = query < s.sequence ? p.row_sums[row + query] : 0.0f;
    const int at = i * (kRows + 1) + j;
    dscores[at] = probabilities[at] * (dot - row_sum);
  });
}

template <typename T, int kRows>
__global__ void __launch_bounds__(kThreads)
    KeyValueKernel(AttentionGeometry s, AttentionBackwardPointers<T> p) {
  const int tile = kRows * TileStride(s.head_size);
  float* keys = SharedMemory<float>();
  float* values = keys + tile;
  float* queries = values + tile;
  float* douts = queries + tile;
  float* dkeys = douts + tile;
  float* dvalues = dkeys + tile;
  float* probabilities = dvalues + tile;
  float* dscores = probabilities + kRows * (kRows + 1);

  const int first = static_cast<int>(blockIdx.x) * kRows;
  const int kv_head = static_cast<int>(blockIdx.y);
  const int batch = static_cast<int>(blockIdx.z);
  LoadTile<kRows>(keys, p.qkv + s.Key(batch, kv_head), s.qkv_stride, first, s);
  LoadTile<kRows>(values, p.qkv + s.Value(batch, kv_head), s.qkv_stride, first, s);
  ZeroTile<kRows>(dkeys, s.head_size);
  ZeroTile<kRows>(dvalues, s.head_size);
  for (int head = kv_head * s.group; head < (kv_head + 1) * s.group; ++head) {
    for (int query = first; query < s.sequence; query += kRows) {
      __syncthreads();
      LoadTile<kRows>(queries, p.qkv + s.Query(batch, head), s.qkv_stride, query, s);
      LoadTile<kRows>(douts, p.dout + s.Out(batch, head), s.out_stride, query, s);
      __syncthreads();
      ScoreGradients<T, kRows>(s, p, s.Row(batch, head), query, first, queries, keys, values, douts,
                               probabilities, dscores);
      __syncthreads();
      AddProduct<kRows, true>(dvalues, nullptr, probabilities, douts, s.head_size);
      AddProduct<kRows, true>(dkeys, nullptr, dscores, queries, s.head_size);
    }
  }
  __syncthreads();
  StoreTile<kRows>(dkeys, p.dqkv + s.Key(batch, kv_head), s.qkv_stride, first, s, s.scale);
  StoreTile<kRows>(dvalues, p.dqkv + s.Value(batch, kv_head), s.qkv_stride, first, s, 1.0f);
}

template <typename T, int kRows>
__global__ void __launch_bounds__(kThreads)
    QueryKernel(AttentionGeometry s, AttentionBackwardPointers<T> p) {
  const int tile = kRows * TileStride(s.head_size);
  float* keys = SharedMemory<float>();
  float* values = keys + tile;
  float* queries = values + tile;
  float* douts = queries + tile;
  float* dqueries = douts + tile;
  float* probabilities = dqueries + tile;
  float* dscores = probabilities + kRows * (kRows + 1);

  const int first = static_cast<int>(gridDim.x - 1 - blockIdx.x) * kRows;
  const int head = static_cast<int>(blockIdx.y);
  const int batch = static_cast<int>(blockIdx.z);
  LoadTile<kRows>(queries, p.qkv + s.Query(batch, head), s.qkv_stride, first, s);
  LoadTile<kRows>(douts, p.dout + s.Out(batch, head), s.out_stride, first, s);
  ZeroTile<kRows>(dqueries, s.head_size);
  for (int key = 0; key <= first; key += kRows) {
    __syncthreads();
    LoadTile<kRows>(keys, p.qkv + s.Key(batch, head / s.group), s.qkv_stride, key, s);
    LoadTile<kRows>(values, p.qkv + s.Value(batch, head / s.group), s.qkv_stride, key, s);
    __syncthreads();
    ScoreGradients<T, kRows>(s, p, s.Row(batch, head), first, key, queries, keys, values, douts,
                             probabilities, dscores);
    __syncthreads();
    AddProduct<kRows, false>(dqueries, nullptr, dscores, keys, s.head_size);
  }
  __syncthreads();
  StoreTile<kRows>(dqueries, p.dqkv + s.Query(batch, head), s.qkv_stride, first, s, s.scale);
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    RowSumKernel(AttentionGeometry s, int64_t rows, const T* out, const T* dout, float* row_sums) {
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const int64_t warps = int64_t{gridDim.x} * (kThreads / kWarpSize);
  const int64_t warp = (int64_t{blockIdx.x} * kThreads + threadIdx.x) / kWarpSize;
  // Rows in the order of memory: token, then head.
  for (int64_t row = warp; row < rows; row += warps) {
    float sum = 0.0f;
    for (int d = lane; d < s.head_size; d += kWarpSize)
      sum += ToFloat(out[row * s.head_size + d]) * ToFloat(dout[row * s.head_size + d]);
    sum = WarpSum(sum);
    const int64_t token = row / s.heads;
    const int64_t batch = token / s.sequence;
    const int64_t at = (batch * s.heads + row % s.heads) * s.sequence + token % s.sequence;
    if (lane == 0) row_sums[at] = sum;
  }
}

template <typename T, int kRows>
void Backward(const LaunchContext& context, const AttentionBackwardCall& call) {
  const AttentionShape& s = call.shape;
  const AttentionBackwardPointers<T> pointers(call);
  const auto shared = static_cast<size_t>(BackwardShared<kRows>(s.head_size));
  Launch(context, KeyValueKernel<T, kRows>, AttentionGrid(s, kRows, s.kv_heads), dim3(kThreads),
         shared, AttentionGeometry(s), pointers);
  Launch(context, QueryKernel<T, kRows>, AttentionGrid(s, kRows, s.heads), dim3(kThreads), shared,
         AttentionGeometry(s), pointers);
}

static_assert(BackwardShared<2>(kMaxSimpleHeadSize) <= kSharedLimit);

}  // namespace

void AttentionBackwardSimple(const LaunchContext& context, const AttentionBackwardCall& call) {
  CheckHeadSize(call.shape);
  AttentionRowSums(context, call);
  DispatchFloat(call.dtype, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    if (BackwardShared<16>(call.shape.head_size) <= kSharedLimit) {
      Backward<T, 16>(context, call);
    } else {
      Backward<T, 2>(context, call);
    }
  });
}

void AttentionRowSums(const LaunchContext& context, const AttentionBackwardCall& call) {
  const AttentionShape& s = call.shape;
  const int64_t rows = s.tokens() * s.heads;
  DispatchFloat(call.dtype, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    Launch(context, RowSumKernel<T>, dim3(GridFor(context, rows, kThreads / kWarpSize, 8)),
           dim3(kThreads), 0, AttentionGeometry(s), rows, static_cast<const T*>(call.out),
           static_cast<const T*>(call.dout), call.row_sums());
  });
}

}  // namespace trimtab
