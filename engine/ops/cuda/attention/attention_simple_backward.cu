#include "engine/ops/cuda/attention/attention_simple.h"

namespace trimtab {
namespace {

using namespace simple_attention;

template <int kRows>
constexpr int64_t BackwardShared(int64_t head_size) {
  return (6 * kRows * (head_size + 1) + 2 * kRows * (kRows + 1)) * int64_t{sizeof(float)};
}

// Probabilities and gradients of the scores of one tile of queries against one of keys.
template <int kRows, typename T, typename Query>
__device__ void ScoreGradients(const BlockGeometry& s, const AttentionBackwardPointers<T, Query>& p,
                               const int32_t* documents, int64_t row, float slope, int first_query,
                               int first_key, const float* queries, const float* keys,
                               const float* values, const float* douts, float* probabilities,
                               float* dscores) {
  DotRows<kRows>(queries, keys, s.head_size, [&](int i, int j, float dot) {
    const int query = first_query + i;
    const bool visible = query < s.size && s.Sees(documents, query, first_key + j);
    const float capped = s.Capped(dot);
    const float score = capped - slope * static_cast<float>(s.Distance(query, first_key + j));
    const int at = i * (kRows + 1) + j;
    probabilities[at] = visible ? Exp(score - p.log_sum_exp[row + query]) : 0.0f;
    dscores[at] = s.CapSlope(capped);
  });
  // The same thread computes both of a pair.
  DotRows<kRows>(douts, values, s.value_size, [&](int i, int j, float dot) {
    const int query = first_query + i;
    const float row_sum = query < s.size ? p.row_sums[row + query] : 0.0f;
    const int at = i * (kRows + 1) + j;
    dscores[at] *= probabilities[at] * (dot - row_sum);
  });
}

template <typename T, typename Query, int kRows, bool kAdd>
__global__ void __launch_bounds__(kThreads)
    KeyValueKernel(BlockGeometry s, AttentionBackwardPointers<T, Query> p) {
  const int tile = kRows * TileStride(s.head_size);
  const int value_tile = kRows * TileStride(s.value_size);
  float* keys = SharedMemory<float>();
  float* values = keys + tile;
  float* queries = values + value_tile;
  float* douts = queries + tile;
  float* dkeys = douts + value_tile;
  float* dvalues = dkeys + tile;
  float* probabilities = dvalues + value_tile;
  float* dscores = probabilities + kRows * (kRows + 1);

  const int first = static_cast<int>(blockIdx.x) * kRows;
  const int kv_head = static_cast<int>(blockIdx.y);
  const int batch = static_cast<int>(blockIdx.z);
  const int32_t* documents = s.Documents(batch);
  LoadTile<kRows>(keys, s.head_size, p.kv + s.Key(batch, kv_head), s.kv_stride, first, s);
  LoadTile<kRows>(values, s.value_size, p.kv + s.Value(batch, kv_head), s.kv_stride, first, s);
  ZeroTile<kRows>(dkeys, s.head_size);
  ZeroTile<kRows>(dvalues, s.value_size);
  for (int head = kv_head * s.group; head < (kv_head + 1) * s.group; ++head) {
    const float slope = s.Slope(head);
    const int end = s.QueriesEnd(documents, first, kRows);
    for (int query = s.QueriesBegin(first); query < end; query += kRows) {
      __syncthreads();
      LoadTile<kRows>(queries, s.head_size, p.qkv + s.Query(batch, head), s.qkv_stride, query, s);
      LoadTile<kRows>(douts, s.value_size, p.dout + s.Out(batch, head), s.out_stride, query, s);
      __syncthreads();
      ScoreGradients<kRows>(s, p, documents, s.Row(batch, head), slope, query, first, queries, keys,
                            values, douts, probabilities, dscores);
      __syncthreads();
      AddProduct<kRows, true>(dvalues, nullptr, probabilities, douts, s.value_size);
      AddProduct<kRows, true>(dkeys, nullptr, dscores, queries, s.head_size);
    }
  }
  __syncthreads();
  StoreTile<kRows, kAdd>(dkeys, s.head_size, p.dkv + s.Key(batch, kv_head), s.kv_stride, first, s,
                         s.scale);
  StoreTile<kRows, kAdd>(dvalues, s.value_size, p.dkv + s.Value(batch, kv_head), s.kv_stride, first,
                         s, 1.0f);
}

template <typename T, typename Query, int kRows, bool kAdd>
__global__ void __launch_bounds__(kThreads)
    QueryKernel(BlockGeometry s, AttentionBackwardPointers<T, Query> p) {
  const int tile = kRows * TileStride(s.head_size);
  const int value_tile = kRows * TileStride(s.value_size);
  float* keys = SharedMemory<float>();
  float* values = keys + tile;
  float* queries = values + value_tile;
  float* douts = queries + tile;
  float* dqueries = douts + value_tile;
  float* probabilities = dqueries + tile;
  float* dscores = probabilities + kRows * (kRows + 1);

  const int first = static_cast<int>(gridDim.x - 1 - blockIdx.x) * kRows;
  const int head = static_cast<int>(blockIdx.y);
  const int batch = static_cast<int>(blockIdx.z);
  const int32_t* documents = s.Documents(batch);
  LoadTile<kRows>(queries, s.head_size, p.qkv + s.Query(batch, head), s.qkv_stride, first, s);
  LoadTile<kRows>(douts, s.value_size, p.dout + s.Out(batch, head), s.out_stride, first, s);
  ZeroTile<kRows>(dqueries, s.head_size);
  const float slope = s.Slope(head);
  const int end = s.KeysEnd(first, kRows);
  for (int key = s.KeysBegin(documents, first, kRows); key < end; key += kRows) {
    __syncthreads();
    LoadTile<kRows>(keys, s.head_size, p.kv + s.Key(batch, head / s.group), s.kv_stride, key, s);
    LoadTile<kRows>(values, s.value_size, p.kv + s.Value(batch, head / s.group), s.kv_stride, key,
                    s);
    __syncthreads();
    ScoreGradients<kRows>(s, p, documents, s.Row(batch, head), slope, first, key, queries, keys,
                          values, douts, probabilities, dscores);
    __syncthreads();
    AddProduct<kRows, false>(dqueries, nullptr, dscores, keys, s.head_size);
  }
  __syncthreads();
  StoreTile<kRows, kAdd>(dqueries, s.head_size, p.DQuery(s, batch, head), p.dquery_stride, first, s,
                         s.scale);
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    RowSumKernel(BlockGeometry s, int64_t rows, const T* out, const T* dout, float* row_sums) {
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const int64_t warps = int64_t{gridDim.x} * (kThreads / kWarpSize);
  const int64_t warp = (int64_t{blockIdx.x} * kThreads + threadIdx.x) / kWarpSize;
  // Rows in the order of memory: token, then head.
  for (int64_t row = warp; row < rows; row += warps) {
    float sum = 0.0f;
    for (int d = lane; d < s.value_size; d += kWarpSize)
      sum += ToFloat(out[row * s.value_size + d]) * ToFloat(dout[row * s.value_size + d]);
    sum = WarpSum(sum);
    const int64_t token = row / s.heads;
    const int64_t batch = token / s.sequence;
    const int64_t at = (batch * s.heads + row % s.heads) * s.sequence + token % s.sequence;
    if (lane == 0) row_sums[at] = sum;
  }
}

template <bool kAdd, typename T, typename Query>
void Backward(const LaunchContext& context, const AttentionShape& shape, const BlockGeometry& s,
              const AttentionBackwardPointers<T, Query>& pointers) {
  const auto launch = [&](auto rows) {
    constexpr int kRows = decltype(rows)::value;
    const auto shared = static_cast<size_t>(BackwardShared<kRows>(LargestHead(shape)));
    Launch(context, KeyValueKernel<T, Query, kRows, kAdd>,
           AttentionGrid(shape, s.size, kRows, s.kv_heads), dim3(kThreads), shared, s, pointers);
    Launch(context, QueryKernel<T, Query, kRows, kAdd>,
           AttentionGrid(shape, s.size, kRows, s.heads), dim3(kThreads), shared, s, pointers);
  };
  if (BackwardShared<16>(LargestHead(shape)) <= kSharedLimit) {
    launch(std::integral_constant<int, 16>());
  } else {
    launch(std::integral_constant<int, 2>());
  }
}

static_assert(BackwardShared<2>(kMaxSimpleHeadSize) <= kSharedLimit);

}  // namespace

void AttentionBackwardSimple(const LaunchContext& context, const AttentionBackwardCall& call) {
  CheckHeadSize(call.shape);
  AttentionRowSums(context, call.shape, call.dtype, call.out, call.dout, call.row_sums());
  DispatchFloat(call.dtype, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    Backward<false>(context, call.shape, BlockGeometry(call.shape), PointersOf<T>(call));
  });
}

void AttentionBlockBackwardSimple(const LaunchContext& context,
                                  const AttentionBlockBackwardCall& call) {
  CheckHeadSize(call.shape);
  AttentionRowSums(context, call.shape, call.dtype, call.out, call.dout, call.row_sums);
  DispatchFloat(call.dtype, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    Backward<true>(context, call.shape, BlockGeometry(call.shape, call.keys, call.block),
                   PointersOf<T>(call));
  });
}

void AttentionRowSums(const LaunchContext& context, const AttentionShape& shape, DType dtype,
                      const void* out, const void* dout, float* row_sums) {
  const int64_t rows = shape.tokens() * shape.heads;
  DispatchFloat(dtype, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    Launch(context, RowSumKernel<T>, dim3(GridFor(context, rows, kThreads / kWarpSize, 8)),
           dim3(kThreads), 0, BlockGeometry(shape), rows, static_cast<const T*>(out),
           static_cast<const T*>(dout), row_sums);
  });
}

}  // namespace trimtab
