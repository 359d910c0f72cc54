#include "engine/ops/attention_cpu.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "engine/base/units.h"
#include "engine/device/cpu/parallel.h"
#include "engine/ops/gemm_cpu.h"
#include "engine/ops/kernel.h"
#include "engine/ops/math.h"

namespace trimtab {
namespace {

constexpr int64_t kQueryTile = 64;  // query rows of one tile

int64_t TileRows(const AttentionShape& shape) { return std::min(kQueryTile, shape.sequence); }

// Where the parts of one (sequence, query head) pair begin, in qkv or dqkv and in out or dout.
struct HeadOffsets {
  int64_t query;
  int64_t key;
  int64_t value;
  int64_t out;

  HeadOffsets(const AttentionShape& s, int64_t sequence_index, int64_t head) {
    const int64_t token = sequence_index * s.sequence;
    const int64_t kv_head = head / (s.heads / s.kv_heads);
    query = token * s.qkv_size() + head * s.head_size;
    key = token * s.qkv_size() + (s.heads + kv_head) * s.head_size;
    value = key + s.kv_heads * s.head_size;
    out = (token * s.heads + head) * s.head_size;
  }
};

// scores[0..n) becomes exp(scores - max), unnormalised; returns the log-sum-exp.
TRIMTAB_CLONES float SoftmaxRow(int64_t n, float* scores, float* sum_out) {
  float highest = -std::numeric_limits<float>::infinity();
#pragma omp simd reduction(max : highest)
  for (int64_t i = 0; i < n; ++i) highest = highest < scores[i] ? scores[i] : highest;
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < n; ++i) {
    const float e = Exp(scores[i] - highest);
    scores[i] = e;
    sum += e;
  }
  *sum_out = sum;
  return highest + std::log(sum);
}

TRIMTAB_CLONES void ScaleRow(int64_t n, float factor, float* x) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) x[i] *= factor;
}

TRIMTAB_CLONES float Dot(int64_t n, const float* x, const float* y) {
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < n; ++i) sum += x[i] * y[i];
  return sum;
}

// p becomes the probability, dp the gradient of the (scaled) score.
TRIMTAB_CLONES void SoftmaxBackwardRow(int64_t n, float log_sum_exp, float delta, float scale,
                                       float* p, float* dp) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) {
    const float probability = Exp(p[i] - log_sum_exp);
    p[i] = probability;
    dp[i] = probability * (dp[i] - delta) * scale;
  }
}

void ForwardTile(const AttentionShape& s, int64_t sequence_index, int64_t head, int64_t first,
                 const float* qkv, float* out, float* log_sum_exp, float* scores) {
  const HeadOffsets at(s, sequence_index, head);
  const int64_t width = s.qkv_size();
  const int64_t out_width = s.heads * s.head_size;
  const int64_t rows = std::min(TileRows(s), s.sequence - first);
  const int64_t keys = first + rows;
  const float scale = 1.0f / std::sqrt(static_cast<float>(s.head_size));
  float sums[kQueryTile];

  Sgemm(rows, keys, s.head_size, scale, {qkv + at.query + first * width, width, false},
        {qkv + at.key, width, true}, 0.0f, scores, keys);
  for (int64_t i = 0; i < rows; ++i) {
    float* row = scores + i * keys;
    const int64_t visible = first + i + 1;
    log_sum_exp[(sequence_index * s.heads + head) * s.sequence + first + i] =
        SoftmaxRow(visible, row, &sums[i]);
    std::fill(row + visible, row + keys, 0.0f);
  }
  float* tile_out = out + at.out + first * out_width;
  Sgemm(rows, s.head_size, keys, 1.0f, {scores, keys, false}, {qkv + at.value, width, false}, 0.0f,
        tile_out, out_width);
  for (int64_t i = 0; i < rows; ++i)
    ScaleRow(s.head_size, 1.0f / sums[i], tile_out + i * out_width);
}

// Adds one tile's part to the dk and dv of its head, and writes its dq.
void BackwardTile(const AttentionShape& s, int64_t sequence_index, int64_t head, int64_t first,
                  const float* qkv, const float* out, const float* log_sum_exp, const float* dout,
                  float* dqkv, float* p) {
  const HeadOffsets at(s, sequence_index, head);
  const int64_t width = s.qkv_size();
  const int64_t out_width = s.heads * s.head_size;
  const int64_t rows = std::min(TileRows(s), s.sequence - first);
  const int64_t keys = first + rows;
  const float scale = 1.0f / std::sqrt(static_cast<float>(s.head_size));
  float* dp = p + rows * keys;
  const float* query = qkv + at.query + first * width;
  const float* tile_out = out + at.out + first * out_width;
  const float* tile_dout = dout + at.out + first * out_width;

  Sgemm(rows, keys, s.head_size, scale, {query, width, false}, {qkv + at.key, width, true}, 0.0f, p,
        keys);
  Sgemm(rows, keys, s.head_size, 1.0f, {tile_dout, out_width, false}, {qkv + at.value, width, true},
        0.0f, dp, keys);
  for (int64_t i = 0; i < rows; ++i) {
    const int64_t visible = first + i + 1;
    const float delta = Dot(s.head_size, tile_out + i * out_width, tile_dout + i * out_width);
    const float lse = log_sum_exp[(sequence_index * s.heads + head) * s.sequence + first + i];
    SoftmaxBackwardRow(visible, lse, delta, scale, p + i * keys, dp + i * keys);
    std::fill(p + i * keys + visible, p + (i + 1) * keys, 0.0f);
    std::fill(dp + i * keys + visible, dp + (i + 1) * keys, 0.0f);
  }
  Sgemm(keys, s.head_size, rows, 1.0f, {p, keys, true}, {tile_dout, out_width, false}, 1.0f,
        dqkv + at.value, width);
  Sgemm(keys, s.head_size, rows, 1.0f, {dp, keys, true}, {query, width, false}, 1.0f, dqkv + at.key,
        width);
  Sgemm(rows, s.head_size, keys, 1.0f, {dp, keys, false}, {qkv + at.key, width, false}, 0.0f,
        dqkv + at.query + first * width, width);
}

}  // namespace

int64_t AttentionForwardScratchCpu(const AttentionShape& shape) {
  return TileRows(shape) * shape.sequence;
}

int64_t AttentionBackwardScratchCpu(const AttentionShape& shape) {
  return 2 * TileRows(shape) * shape.sequence;
}

void AttentionForwardCpu(int threads, const AttentionShape& shape, const float* qkv, float* out,
                         float* log_sum_exp, float* scratch) {
  UseThreads(1);  // a tile is one worker's
  const int64_t tiles = CeilDiv(shape.sequence, kQueryTile);
  const int64_t worker_scratch = AttentionForwardScratchCpu(shape);
  ParallelForEach(threads, shape.batch * shape.heads * tiles, [&](int64_t item, int worker) {
    const int64_t pair = item / tiles;
    // The longest rows first, so that the workers end together.
    const int64_t tile = tiles - 1 - item % tiles;
    ForwardTile(shape, pair / shape.heads, pair % shape.heads, tile * kQueryTile, qkv, out,
                log_sum_exp, scratch + worker * worker_scratch);
  });
}

void AttentionBackwardCpu(int threads, const AttentionShape& shape, const float* qkv,
                          const float* out, const float* log_sum_exp, const float* dout,
                          float* dqkv, float* scratch) {
  UseThreads(1);
  const int64_t group = shape.heads / shape.kv_heads;
  const int64_t width = shape.qkv_size();
  const int64_t worker_scratch = AttentionBackwardScratchCpu(shape);
  // One worker per key/value head: its gradients are added up in one fixed order.
  ParallelForEach(threads, shape.batch * shape.kv_heads, [&](int64_t item, int worker) {
    const int64_t sequence_index = item / shape.kv_heads;
    const int64_t first_head = item % shape.kv_heads * group;
    const HeadOffsets at(shape, sequence_index, first_head);
    for (int64_t t = 0; t < shape.sequence; ++t) {
      std::fill_n(dqkv + at.key + t * width, shape.head_size, 0.0f);
      std::fill_n(dqkv + at.value + t * width, shape.head_size, 0.0f);
    }
    for (int64_t head = first_head; head < first_head + group; ++head) {
      for (int64_t first = 0; first < shape.sequence; first += kQueryTile) {
        BackwardTile(shape, sequence_index, head, first, qkv, out, log_sum_exp, dout, dqkv,
                     scratch + worker * worker_scratch);
      }
    }
  });
}

}  // namespace trimtab
