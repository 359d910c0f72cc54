#include "engine/ops/cuda/attention/attention_tile.h"

namespace trimtab {
namespace {

// What depends on the head size: as many rows and keys as registers and shared memory hold.
template <int kHead>
struct Tiles {
  static constexpr int kWarps = 4;
  static constexpr int kThreads = kWarps * kWarpSize;
  static constexpr int kRowTiles = 2;  // of 16 queries, per warp
  static constexpr int kQueries = kWarps * kRowTiles * 16;
  static constexpr int kKeys = 64;
  static constexpr int kSharedElements = (kQueries + 2 * kKeys) * kHead;
};

// The softmax so far of a warp's rows; each lane sees two rows of a row tile.
template <int kRowTiles>
struct OnlineSoftmax {
  float highest[kRowTiles][2];  // of the unscaled scores
  float sum[kRowTiles][2];      // this lane's part
};

// One tile of queries of one head, over the keys it sees. Writes out and log_sum_exp; with kAdd,
// adds the block's keys to them. Without kDocuments every query sees key 0.
template <typename T, typename Out, int kHead, bool kAdd, bool kDocuments>
__global__ void __launch_bounds__(Tiles<kHead>::kThreads)
    ForwardKernel(BlockGeometry g, const T* qkv, const T* kv, Out* out, float* log_sum_exp) {
  using Tile = Tiles<kHead>;
  constexpr int kRowTiles = Tile::kRowTiles;
  constexpr int kQueries = Tile::kQueries;
  constexpr int kKeys = Tile::kKeys;
  constexpr int kThreads = Tile::kThreads;
  T* queries = SharedMemory<T>();
  T* keys = queries + kQueries * kHead;
  T* values = keys + kKeys * kHead;

  // The longest rows first, so that the blocks end together.
  const int first = static_cast<int>(gridDim.x - 1 - blockIdx.x) * kQueries;
  const int head = static_cast<int>(blockIdx.y);
  const int batch = static_cast<int>(blockIdx.z);
  const T* query_head = qkv + g.Query(batch, head);
  const T* key_head = kv + g.Key(batch, head / g.group);
  const T* value_head = kv + g.Value(batch, head / g.group);
  const int32_t* documents = kDocuments ? g.Documents(batch) : nullptr;
  const int begin = kDocuments ? g.KeysBegin(documents, first, kKeys) : 0;
  const int end = g.KeysEnd(first, kQueries);  // no query sees a key from here on
  if (kDocuments && begin >= end) return;      // nothing to add

  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const int row = static_cast<int>(threadIdx.x) / kWarpSize * kRowTiles * 16;  // of this warp
  const float scale = g.scale * kLog2E;  // exponentials to base 2

  CopyTile<kQueries, kHead, kThreads>(queries, query_head, g.qkv_stride, first, g.size);
  CopyTile<kKeys, kHead, kThreads>(keys, key_head, g.kv_stride, begin, g.size);
  CommitCopies();

  FragmentC result[kRowTiles][kHead / 8] = {};
  OnlineSoftmax<kRowTiles> softmax;
#pragma unroll
  for (int r = 0; r < kRowTiles; ++r) {
    softmax.highest[r][0] = softmax.highest[r][1] = -INFINITY;
    softmax.sum[r][0] = softmax.sum[r][1] = 0.0f;
  }

  // Values arrive while the scores are computed, the next keys while the values are used.
  for (int key = begin; key < end; key += kKeys) {
    WaitCopies<0>();
    __syncthreads();
    CopyTile<kKeys, kHead, kThreads>(values, value_head, g.kv_stride, key, g.size);
    CommitCopies();

    FragmentC scores[kRowTiles][kKeys / 8] = {};
    MultiplyTransposed<kRowTiles, kKeys, kHead>(queries, row, keys, scores);
    WaitCopies<0>();
    __syncthreads();
    if (key + kKeys < end) {
      CopyTile<kKeys, kHead, kThreads>(keys, key_head, g.kv_stride, key + kKeys, g.size);
      CommitCopies();
    }

#pragma unroll
    for (int r = 0; r < kRowTiles; ++r) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int query = first + row + r * 16 + lane / 4 + i * 8;
        float highest = softmax.highest[r][i];
        // Some key of the tile is hidden from some row.
        if (kDocuments || key + kKeys > g.SeenBy(first + row)) {
#pragma unroll
          for (int n = 0; n < kKeys / 8; ++n) {
            const int column = key + n * 8 + lane % 4 * 2;
            if (!g.Sees(documents, query, column)) scores[r][n][2 * i] = -INFINITY;
            if (!g.Sees(documents, query, column + 1)) scores[r][n][2 * i + 1] = -INFINITY;
          }
        }
#pragma unroll
        for (int n = 0; n < kKeys / 8; ++n)
          highest = fmaxf(highest, fmaxf(scores[r][n][2 * i], scores[r][n][2 * i + 1]));
        highest = fmaxf(highest, __shfl_xor_sync(kWholeWarp, highest, 1));
        highest = fmaxf(highest, __shfl_xor_sync(kWholeWarp, highest, 2));
        // Where every row sees key 0, the maximum is finite from the first tile on.
        const float base = kDocuments && highest == -INFINITY ? 0.0f : highest;
        const float correction = Exp2((softmax.highest[r][i] - base) * scale);
        const float shift = base * scale;
        float sum = 0.0f;
#pragma unroll
        for (int n = 0; n < kKeys / 8; ++n) {
#pragma unroll
          for (int j = 0; j < 2; ++j) {
            float& score = scores[r][n][2 * i + j];
            score = Exp2(score * scale - shift);
            sum += score;
          }
        }
        softmax.highest[r][i] = highest;
        softmax.sum[r][i] = softmax.sum[r][i] * correction + sum;
#pragma unroll
        for (int n = 0; n < kHead / 8; ++n) {
          result[r][n][2 * i] *= correction;
          result[r][n][2 * i + 1] *= correction;
        }
      }
    }
    MultiplyFromRegisters<kRowTiles, kKeys, kHead>(scores, values, result);
  }

  float* row_log_sum_exp = log_sum_exp + g.Row(batch, head);
#pragma unroll
  for (int r = 0; r < kRowTiles; ++r) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      float sum = softmax.sum[r][i];
      sum += __shfl_xor_sync(kWholeWarp, sum, 1);
      sum += __shfl_xor_sync(kWholeWarp, sum, 2);
      const int query = first + row + r * 16 + lane / 4 + i * 8;
      const bool valid = query < g.size;
      AttentionMerge merge = {0.0f, 1.0f, softmax.highest[r][i] * g.scale + logf(sum)};
      if constexpr (kAdd) {
        // The four lanes of a row read before one of them writes.
        const float so_far = valid ? row_log_sum_exp[query] : 0.0f;
        merge = MergeAttention(so_far, merge.log_sum_exp);
        __syncwarp();
        const float weight = kDocuments && sum == 0.0f ? 0.0f : merge.weight / sum;
        MergeRow<kHead>(result[r], i, merge.keep, weight,
                        valid ? out + g.Out(batch, head) + query * g.out_stride : nullptr);
      } else {
        const float inverse = 1.0f / sum;
#pragma unroll
        for (int n = 0; n < kHead / 8; ++n) {
          result[r][n][2 * i] *= inverse;
          result[r][n][2 * i + 1] *= inverse;
        }
      }
      if (lane % 4 == 0 && valid) row_log_sum_exp[query] = merge.log_sum_exp;
    }
  }
  if constexpr (!kAdd) {
    StoreRows<kRowTiles, kHead>(result, queries, row, out + g.Out(batch, head), g.out_stride,
                                first + row, g.size);
  }
}

template <bool kAdd, typename T, typename Out>
void Forward(const LaunchContext& context, const AttentionShape& shape, const BlockGeometry& g,
             const T* qkv, const T* kv, Out* out, float* log_sum_exp) {
  const auto launch = [&](auto head) {
    constexpr int kHead = decltype(head)::value;
    using Tile = Tiles<kHead>;
    const bool documents = g.positions != nullptr;
    Launch(context,
           documents ? ForwardKernel<T, Out, kHead, kAdd, true>
                     : ForwardKernel<T, Out, kHead, kAdd, false>,
           AttentionGrid(shape, g.size, Tile::kQueries, g.heads), dim3(Tile::kThreads),
           Tile::kSharedElements * sizeof(T), g, qkv, kv, out, log_sum_exp);
  };
  if (g.head_size == 64) {
    launch(std::integral_constant<int, 64>());
  } else {
    launch(std::integral_constant<int, 128>());
  }
}

}  // namespace

bool MmaAttentionTakes(const AttentionShape& shape, DType dtype) {
  return (dtype == DType::kBf16 || dtype == DType::kF16) &&
         (shape.head_size == 64 || shape.head_size == 128) &&
         shape.value_size() == shape.head_size && shape.scores.plain();
}

void AttentionForwardMma(const LaunchContext& context, const AttentionForwardCall& call) {
  CheckMmaTakes(call.shape, call.dtype);
  TRIMTAB_ASSERT(IsAligned(call.qkv) && IsAligned(call.out),
                 "attention: operands are not aligned to 16 bytes");
  Dispatch16Bit(call.dtype, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    const T* qkv = static_cast<const T*>(call.qkv);
    Forward<false>(context, call.shape, BlockGeometry(call.shape), qkv,
                   qkv + call.shape.query_size(), static_cast<T*>(call.out), call.log_sum_exp);
  });
}

void AttentionBlockForwardMma(const LaunchContext& context, const AttentionBlockForwardCall& call) {
  CheckMmaTakes(call.shape, call.dtype);
  TRIMTAB_ASSERT(IsAligned(call.qkv) && IsAligned(call.kv) && IsAligned(call.out),
                 "attention: operands are not aligned to 16 bytes");
  Dispatch16Bit(call.dtype, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    Forward<true>(context, call.shape, BlockGeometry(call.shape, call.keys, call.block),
                  static_cast<const T*>(call.qkv), static_cast<const T*>(call.kv), call.out,
                  call.log_sum_exp);
  });
}

}  // namespace trimtab
