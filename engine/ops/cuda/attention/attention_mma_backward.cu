// The backward pass in two kernels that compute the probabilities twice (7 products where 5 would
// do), so that no two blocks ever add to the same gradient: no atomics, equal bits at every run.
#include "engine/ops/cuda/attention/attention_tile.h"

namespace trimtab {
namespace {

constexpr int kWarps = 8;
constexpr int kThreads = kWarps * kWarpSize;
constexpr int kBlockRows = kWarps * 16;  // what a block owns: each warp holds 16 rows of gradients
constexpr int kStepRows = 64;            // what it walks over, a step at a time

// Tiles of the block's own rows (two) and of two steps (two each, one in use, one arriving), then
// the log-sum-exps and row sums of two steps.
template <typename T, int kHead>
constexpr size_t kSharedBytes = (2 * kBlockRows + 4 * kStepRows) * kHead * sizeof(T) +
                                4 * kStepRows * sizeof(float);

// exp2(score * scale - shift), or 0 for a hidden pair.
__device__ __forceinline__ float Probability(float score, float scale, float shift, bool hidden) {
  return hidden ? 0.0f : Exp2(score * scale - shift);
}

// dk and dv of one tile of keys of one key/value head: over its query heads and their queries.
// Rows of the products are keys, columns queries.
template <typename T, typename Query, int kHead, bool kAdd, bool kDocuments>
__global__ void __launch_bounds__(kThreads, 1)
    KeyValueKernel(BlockGeometry g, AttentionBackwardPointers<T, Query> p) {
  T* keys = SharedMemory<T>();
  T* values = keys + kBlockRows * kHead;
  T* steps = values + kBlockRows * kHead;  // queries, then gradients of out, for each step
  auto* rows = reinterpret_cast<float*>(steps + 4 * kStepRows * kHead);

  const int first = static_cast<int>(blockIdx.x) * kBlockRows;
  const int kv_head = static_cast<int>(blockIdx.y);
  const int batch = static_cast<int>(blockIdx.z);
  const int64_t key_at = g.Key(batch, kv_head);
  const int64_t value_at = g.Value(batch, kv_head);

  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const int row = static_cast<int>(threadIdx.x) / kWarpSize * 16;  // of this warp
  const float scale = g.scale * kLog2E;

  // Causal queries before the tile's first key see none of its keys.
  const int first_query = g.QueriesBegin(first) / kStepRows * kStepRows;
  const int32_t* documents = kDocuments ? g.Documents(batch) : nullptr;
  const int end_query = kDocuments ? g.QueriesEnd(documents, first, kBlockRows) : g.size;
  if (kDocuments && end_query <= first_query) return;  // nothing to add
  const int steps_per_head = (end_query - first_query + kStepRows - 1) / kStepRows;
  const int step_count = steps_per_head * g.group;
  const auto copy_step = [&](int step) {
    const int head = kv_head * g.group + step / steps_per_head;
    const int query = first_query + step % steps_per_head * kStepRows;
    T* tile = steps + step % 2 * 2 * kStepRows * kHead;
    CopyTile<kStepRows, kHead, kThreads>(tile, p.qkv + g.Query(batch, head), g.qkv_stride, query,
                                         g.size);
    CopyTile<kStepRows, kHead, kThreads>(tile + kStepRows * kHead, p.dout + g.Out(batch, head),
                                         g.out_stride, query, g.size);
    const int i = static_cast<int>(threadIdx.x);
    if (i < 2 * kStepRows) {
      const float* source = (i < kStepRows ? p.log_sum_exp : p.row_sums) + g.Row(batch, head);
      const int at = query + i % kStepRows;
      const bool valid = at < g.size;
      CopyAsync<4>(rows + step % 2 * 2 * kStepRows + i, source + (valid ? at : 0), valid);
    }
    CommitCopies();
  };

  CopyTile<kBlockRows, kHead, kThreads>(keys, p.kv + key_at, g.kv_stride, first, g.size);
  CopyTile<kBlockRows, kHead, kThreads>(values, p.kv + value_at, g.kv_stride, first, g.size);
  copy_step(0);

  FragmentC dkey[1][kHead / 8] = {};
  FragmentC dvalue[1][kHead / 8] = {};
  for (int step = 0; step < step_count; ++step) {
    if (step + 1 < step_count) {
      copy_step(step + 1);
      WaitCopies<1>();
    } else {
      WaitCopies<0>();
    }
    __syncthreads();
    const T* queries = steps + step % 2 * 2 * kStepRows * kHead;
    const T* douts = queries + kStepRows * kHead;
    const float* log_sum_exps = rows + step % 2 * 2 * kStepRows;
    const float* row_sums = log_sum_exps + kStepRows;
    const int query = first_query + step % steps_per_head * kStepRows;

    FragmentC probabilities[1][kStepRows / 8] = {};
    MultiplyTransposed<1, kStepRows, kHead>(keys, row, queries, probabilities);
    const bool masked = g.Distance(query, first + row + 15) < 0;
    // A query after the end has a zero gradient of out, so whatever its probability, it adds zero.
#pragma unroll
    for (int n = 0; n < kStepRows / 8; ++n) {
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const int column = n * 8 + lane % 4 * 2 + j;
        const float shift = log_sum_exps[column] * kLog2E;
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          float& value = probabilities[0][n][2 * i + j];
          const int key = first + row + lane / 4 + i * 8;
          const bool hidden = kDocuments ? !g.Sees(documents, query + column, key)
                                         : masked && g.Distance(query + column, key) < 0;
          value = Probability(value, scale, shift, hidden);
        }
      }
    }
    MultiplyFromRegisters<1, kStepRows, kHead>(probabilities, douts, dvalue);

    FragmentC dscores[1][kStepRows / 8] = {};
    MultiplyTransposed<1, kStepRows, kHead>(values, row, douts, dscores);
#pragma unroll
    for (int n = 0; n < kStepRows / 8; ++n) {
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const float row_sum = row_sums[n * 8 + lane % 4 * 2 + j];
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          float& value = dscores[0][n][2 * i + j];
          value = probabilities[0][n][2 * i + j] * (value - row_sum);
        }
      }
    }
    MultiplyFromRegisters<1, kStepRows, kHead>(dscores, queries, dkey);
    __syncthreads();
  }

#pragma unroll
  for (int n = 0; n < kHead / 8; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) dkey[0][n][i] *= g.scale;
  }
  if constexpr (kAdd) {
    AddRows<1, kHead>(dkey, p.dkv + key_at, g.kv_stride, first + row, g.size);
    AddRows<1, kHead>(dvalue, p.dkv + value_at, g.kv_stride, first + row, g.size);
  } else {
    // Only this warp has read these rows of the tiles.
    StoreRows<1, kHead>(dkey, keys, row, p.dkv + key_at, g.kv_stride, first + row, g.size);
    StoreRows<1, kHead>(dvalue, values, row, p.dkv + value_at, g.kv_stride, first + row, g.size);
  }
}

// dq of one tile of queries of one head: over the keys they see. Rows are queries, columns keys.
template <typename T, typename Query, int kHead, bool kAdd, bool kDocuments>
__global__ void __launch_bounds__(kThreads, 1)
    QueryKernel(BlockGeometry g, AttentionBackwardPointers<T, Query> p) {
  T* queries = SharedMemory<T>();
  T* douts = queries + kBlockRows * kHead;
  T* steps = douts + kBlockRows * kHead;  // keys, then values, for each step

  // The longest rows first, so that the blocks end together.
  const int first = static_cast<int>(gridDim.x - 1 - blockIdx.x) * kBlockRows;
  const int head = static_cast<int>(blockIdx.y);
  const int batch = static_cast<int>(blockIdx.z);
  const T* key_head = p.kv + g.Key(batch, head / g.group);
  const T* value_head = p.kv + g.Value(batch, head / g.group);
  const int32_t* documents = kDocuments ? g.Documents(batch) : nullptr;
  const int begin = kDocuments ? g.KeysBegin(documents, first, kStepRows) : 0;
  const int end = g.KeysEnd(first, kBlockRows);
  if (kDocuments && begin >= end) return;  // nothing to add

  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const int row = static_cast<int>(threadIdx.x) / kWarpSize * 16;
  const float scale = g.scale * kLog2E;
  float shift[2];
  float row_sum[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int query = first + row + lane / 4 + i * 8;
    const bool valid = query < g.size;
    const int64_t at = g.Row(batch, head) + query;
    shift[i] = valid ? p.log_sum_exp[at] * kLog2E : 0.0f;
    row_sum[i] = valid ? p.row_sums[at] : 0.0f;
  }

  const auto copy_step = [&](int key) {
    T* tile = steps + key / kStepRows % 2 * 2 * kStepRows * kHead;
    CopyTile<kStepRows, kHead, kThreads>(tile, key_head, g.kv_stride, key, g.size);
    CopyTile<kStepRows, kHead, kThreads>(tile + kStepRows * kHead, value_head, g.kv_stride, key,
                                         g.size);
    CommitCopies();
  };
  CopyTile<kBlockRows, kHead, kThreads>(queries, p.qkv + g.Query(batch, head), g.qkv_stride, first,
                                        g.size);
  CopyTile<kBlockRows, kHead, kThreads>(douts, p.dout + g.Out(batch, head), g.out_stride, first,
                                        g.size);
  copy_step(begin);

  FragmentC dquery[1][kHead / 8] = {};
  for (int key = begin; key < end; key += kStepRows) {
    if (key + kStepRows < end) {
      copy_step(key + kStepRows);
      WaitCopies<1>();
    } else {
      WaitCopies<0>();
    }
    __syncthreads();
    const T* keys = steps + key / kStepRows % 2 * 2 * kStepRows * kHead;
    const T* values = keys + kStepRows * kHead;

    FragmentC dscores[1][kStepRows / 8] = {};
    FragmentC scores[1][kStepRows / 8] = {};
    MultiplyTransposed<1, kStepRows, kHead>(queries, row, keys, scores);
    MultiplyTransposed<1, kStepRows, kHead>(douts, row, values, dscores);
    const bool masked = kDocuments || key + kStepRows > g.SeenBy(first + row);
#pragma unroll
    for (int n = 0; n < kStepRows / 8; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int query = first + row + lane / 4 + i / 2 * 8;
        const bool hidden = masked && !g.Sees(documents, query, key + n * 8 + lane % 4 * 2 + i % 2);
        const float probability = Probability(scores[0][n][i], scale, shift[i / 2], hidden);
        dscores[0][n][i] = probability * (dscores[0][n][i] - row_sum[i / 2]);
      }
    }
    MultiplyFromRegisters<1, kStepRows, kHead>(dscores, keys, dquery);
    __syncthreads();
  }

#pragma unroll
  for (int n = 0; n < kHead / 8; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) dquery[0][n][i] *= g.scale;
  }
  Query* rows = p.DQuery(g, batch, head);
  if constexpr (kAdd) {
    AddRows<1, kHead>(dquery, rows, p.dquery_stride, first + row, g.size);
  } else {
    StoreRows<1, kHead>(dquery, queries, row, rows, p.dquery_stride, first + row, g.size);
  }
}

template <bool kAdd, typename T, typename Query>
void Backward(const LaunchContext& context, const AttentionShape& shape, const BlockGeometry& g,
              const AttentionBackwardPointers<T, Query>& pointers) {
  const auto launch = [&](auto head) {
    constexpr int kHead = decltype(head)::value;
    const bool documents = g.positions != nullptr;
    Launch(context,
           documents ? KeyValueKernel<T, Query, kHead, kAdd, true>
                     : KeyValueKernel<T, Query, kHead, kAdd, false>,
           AttentionGrid(shape, g.size, kBlockRows, g.kv_heads), dim3(kThreads),
           kSharedBytes<T, kHead>, g, pointers);
    Launch(context,
           documents ? QueryKernel<T, Query, kHead, kAdd, true>
                     : QueryKernel<T, Query, kHead, kAdd, false>,
           AttentionGrid(shape, g.size, kBlockRows, g.heads), dim3(kThreads),
           kSharedBytes<T, kHead>, g, pointers);
  };
  if (g.head_size == 64) {
    launch(std::integral_constant<int, 64>());
  } else {
    launch(std::integral_constant<int, 128>());
  }
}

}  // namespace

void AttentionBackwardMma(const LaunchContext& context, const AttentionBackwardCall& call) {
  CheckMmaTakes(call.shape, call.dtype);
  TRIMTAB_ASSERT(IsAligned(call.qkv) && IsAligned(call.dout) && IsAligned(call.dqkv),
                 "attention: operands are not aligned to 16 bytes");
  AttentionRowSums(context, call.shape, call.dtype, call.out, call.dout, call.row_sums());
  Dispatch16Bit(call.dtype, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    Backward<false>(context, call.shape, BlockGeometry(call.shape), PointersOf<T>(call));
  });
}

void AttentionBlockBackwardMma(const LaunchContext& context,
                               const AttentionBlockBackwardCall& call) {
  CheckMmaTakes(call.shape, call.dtype);
  TRIMTAB_ASSERT(IsAligned(call.qkv) && IsAligned(call.kv) && IsAligned(call.dout) &&
                     IsAligned(call.dquery) && IsAligned(call.dkv),
                 "attention: operands are not aligned to 16 bytes");
  AttentionRowSums(context, call.shape, call.dtype, call.out, call.dout, call.row_sums);
  Dispatch16Bit(call.dtype, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    Backward<true>(context, call.shape, BlockGeometry(call.shape, call.keys, call.block),
                   PointersOf<T>(call));
  });
}

}  // namespace trimtab
