#include "engine/ops/cuda/attention_tile.h"

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

// One block of queries of one head, over the keys it sees.
template <typename T, int kHead>
__global__ void __launch_bounds__(Tiles<kHead>::kThreads)
    ForwardKernel(AttentionGeometry g, const T* qkv, T* out, float* log_sum_exp) {
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
  const T* key_head = qkv + g.Key(batch, head / g.group);
  const T* value_head = qkv + g.Value(batch, head / g.group);
  const int end = std::min(first + kQueries, g.sequence);  // no query sees a key from here on

  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const int row = static_cast<int>(threadIdx.x) / kWarpSize * kRowTiles * 16;  // of this warp
  const float scale = g.scale * kLog2E;  // exponentials to base 2

  CopyTile<kQueries, kHead, kThreads>(queries, query_head, g.qkv_stride, first, g.sequence);
  CopyTile<kKeys, kHead, kThreads>(keys, key_head, g.qkv_stride, 0, g.sequence);
  CommitCopies();

  FragmentC result[kRowTiles][kHead / 8] = {};
  OnlineSoftmax<kRowTiles> softmax;
#pragma unroll
  for (int r = 0; r < kRowTiles; ++r) {
    softmax.highest[r][0] = softmax.highest[r][1] = -INFINITY;
    softmax.sum[r][0] = softmax.sum[r][1] = 0.0f;
  }

  // Values arrive while the scores are computed, the next keys while the values are used.
  for (int key = 0; key < end; key += kKeys) {
    WaitCopies<0>();
    __syncthreads();
    CopyTile<kKeys, kHead, kThreads>(values, value_head, g.qkv_stride, key, g.sequence);
    CommitCopies();

    FragmentC scores[kRowTiles][kKeys / 8] = {};
    MultiplyTransposed<kRowTiles, kKeys, kHead>(queries, row, keys, scores);
    WaitCopies<0>();
    __syncthreads();
    if (key + kKeys < end) {
      CopyTile<kKeys, kHead, kThreads>(keys, key_head, g.qkv_stride, key + kKeys, g.sequence);
      CommitCopies();
    }

#pragma unroll
    for (int r = 0; r < kRowTiles; ++r) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int query = first + row + r * 16 + lane / 4 + i * 8;
        float highest = softmax.highest[r][i];
        if (key + kKeys > first + row) {  // some key of the tile is hidden from some row
#pragma unroll
          for (int n = 0; n < kKeys / 8; ++n) {
            const int column = key + n * 8 + lane % 4 * 2;
            if (column > query) scores[r][n][2 * i] = -INFINITY;
            if (column + 1 > query) scores[r][n][2 * i + 1] = -INFINITY;
          }
        }
#pragma unroll
        for (int n = 0; n < kKeys / 8; ++n)
          highest = fmaxf(highest, fmaxf(scores[r][n][2 * i], scores[r][n][2 * i + 1]));
        highest = fmaxf(highest, __shfl_xor_sync(kWholeWarp, highest, 1));
        highest = fmaxf(highest, __shfl_xor_sync(kWholeWarp, highest, 2));
        // Every row sees key 0, so from the first tile on the maximum is finite.
        const float correction = Exp2((softmax.highest[r][i] - highest) * scale);
        const float shift = highest * scale;
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
      const float inverse = 1.0f / sum;
#pragma unroll
      for (int n = 0; n < kHead / 8; ++n) {
        result[r][n][2 * i] *= inverse;
        result[r][n][2 * i + 1] *= inverse;
      }
      const int query = first + row + r * 16 + lane / 4 + i * 8;
      if (lane % 4 == 0 && query < g.sequence)
        row_log_sum_exp[query] = softmax.highest[r][i] * g.scale + logf(sum);
    }
  }
  StoreRows<kRowTiles, kHead>(result, queries, row, out + g.Out(batch, head), g.out_stride,
                              first + row, g.sequence);
}

template <typename T, int kHead>
void Forward(const LaunchContext& context, const AttentionForwardCall& call) {
  using Tile = Tiles<kHead>;
  const AttentionShape& s = call.shape;
  Launch(context, ForwardKernel<T, kHead>, AttentionGrid(s, Tile::kQueries, s.heads),
         dim3(Tile::kThreads), Tile::kSharedElements * sizeof(T), AttentionGeometry(s),
         static_cast<const T*>(call.qkv), static_cast<T*>(call.out), call.log_sum_exp);
}

template <typename T>
void ForwardOfType(const LaunchContext& context, const AttentionForwardCall& call) {
  if (call.shape.head_size == 64) {
    Forward<T, 64>(context, call);
  } else {
    Forward<T, 128>(context, call);
  }
}

}  // namespace

bool MmaAttentionTakes(const AttentionShape& shape, DType dtype) {
  return (dtype == DType::kBf16 || dtype == DType::kF16) &&
         (shape.head_size == 64 || shape.head_size == 128);
}

void AttentionForwardMma(const LaunchContext& context, const AttentionForwardCall& call) {
  TRIMTAB_ASSERT(MmaAttentionTakes(call.shape, call.dtype),
                 "attention: no tensor-core kernel for head size {} in {}", call.shape.head_size,
                 Name(call.dtype));
  TRIMTAB_ASSERT(IsAligned(call.qkv) && IsAligned(call.out),
                 "attention: operands are not aligned to 16 bytes");
  if (call.dtype == DType::kBf16) {
    ForwardOfType<Bf16>(context, call);
  } else {
    ForwardOfType<F16>(context, call);
  }
}

}  // namespace trimtab
