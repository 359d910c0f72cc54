#include "engine/ops/cpu/attention/attention_tile.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "engine/ops/cpu/gemm/gemm.h"
#include "engine/ops/kernel.h"
#include "engine/ops/math.h"

namespace trimtab {
namespace {

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

TRIMTAB_CLONES float Dot(int64_t n, const float* x, const float* y) {
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < n; ++i) sum += x[i] * y[i];
  return sum;
}

// scores[0..n) become soft_cap * tanh(scores / soft_cap).
TRIMTAB_CLONES void SoftCapRow(int64_t n, float soft_cap, float* scores) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) scores[i] = soft_cap * Tanh(scores[i] / soft_cap);
}

// scores[i] loses `slope` for each key after it, up to key `last`.
TRIMTAB_CLONES void AlibiRow(int64_t n, float slope, int64_t last, float* scores) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) scores[i] += slope * static_cast<float>(i - last);
}

// dp becomes dp - delta, times the derivative of the cap, given the capped scores.
TRIMTAB_CLONES void SoftCapBackwardRow(int64_t n, float soft_cap, float delta, const float* capped,
                                       float* dp) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) {
    const float t = capped[i] / soft_cap;
    dp[i] = (dp[i] - delta) * (1.0f - t * t);
  }
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

TRIMTAB_CLONES void ScaleRow(int64_t n, float factor, float* x) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) x[i] *= factor;
}

// y = y * keep + x * weight.
TRIMTAB_CLONES void MergeRow(int64_t n, float weight, const float* x, float keep, float* y) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) y[i] = y[i] * keep + x[i] * weight;
}

MatrixView View(const HeadRows& rows, bool transposed = false) {
  return {rows.data, rows.stride, transposed};
}

// The keys [begin, end) that a row sees.
struct VisibleKeys {
  int64_t begin;
  int64_t end;

  VisibleKeys(const AttentionTile& tile, int64_t row)
      : begin(std::clamp<int64_t>(tile.seen + row - tile.MostKeys(row), 0, tile.keys)),
        end(std::min(tile.seen + row, tile.keys)) {}

  // Of a row over all keys of the tile.
  void HideOthers(int64_t keys, float* row) const {
    std::fill(row, row + begin, 0.0f);
    std::fill(row + end, row + keys, 0.0f);
  }
};

// ALiBi of a row, whose visible scores begin at `scores`.
void AddAlibi(const AttentionTile& tile, int64_t row, const VisibleKeys& visible, float* scores) {
  if (tile.slope == 0.0f) return;
  AlibiRow(visible.end - visible.begin, tile.slope, tile.seen + row - 1 - visible.begin, scores);
}

}  // namespace

float WeighScores(const ScoreRow& row, int64_t n, float* scores, float* sum) {
  if (row.soft_cap > 0) SoftCapRow(n, row.soft_cap, scores);
  if (row.slope != 0.0f) AlibiRow(n, row.slope, row.last, scores);
  return SoftmaxRow(n, scores, sum);
}

void ForwardTile(const AttentionTile& tile, float* out, int64_t out_stride, float* sums,
                 float* log_sum_exp, float* scratch) {
  const int64_t rows = tile.rows;
  const int64_t keys = tile.keys;
  Sgemm(rows, keys, tile.head_size, tile.scale, View(tile.query), View(tile.key, true), 0.0f,
        scratch, keys);
  for (int64_t i = 0; i < rows; ++i) {
    float* row = scratch + i * keys;
    const VisibleKeys visible(tile, i);
    log_sum_exp[i] = WeighScores({tile.soft_cap, tile.slope, tile.seen + i - 1 - visible.begin},
                                 visible.end - visible.begin, row + visible.begin, &sums[i]);
    visible.HideOthers(keys, row);
  }
  Sgemm(rows, tile.value_size, keys, 1.0f, {scratch, keys, false}, View(tile.value), 0.0f, out,
        out_stride);
}

void NormaliseTile(const AttentionTile& tile, const float* sums, float* out, int64_t out_stride) {
  for (int64_t i = 0; i < tile.rows; ++i) {
    ScaleRow(tile.value_size, 1.0f / sums[i], out + i * out_stride);
  }
}

void MergeTile(const AttentionTile& tile, const float* part, const float* sums,
               const float* part_log_sum_exp, float* out, int64_t out_stride, float* log_sum_exp) {
  for (int64_t i = 0; i < tile.rows; ++i) {
    const AttentionMerge merge = MergeAttention(log_sum_exp[i], part_log_sum_exp[i]);
    const float weight = sums[i] > 0.0f ? merge.weight / sums[i] : 0.0f;  // a window hides all
    MergeRow(tile.value_size, weight, part + i * tile.value_size, merge.keep, out + i * out_stride);
    log_sum_exp[i] = merge.log_sum_exp;
  }
}

void BackwardTile(const AttentionTile& tile, const TileGradient& gradient, float* dquery,
                  int64_t dquery_stride, bool add_to_dquery, float* dkey, float* dvalue,
                  float* scratch) {
  const int64_t rows = tile.rows;
  const int64_t keys = tile.keys;
  const int64_t size = tile.head_size;
  const int64_t value_size = tile.value_size;
  float* p = scratch;
  float* dp = scratch + rows * keys;
  Sgemm(rows, keys, size, tile.scale, View(tile.query), View(tile.key, true), 0.0f, p, keys);
  Sgemm(rows, keys, value_size, 1.0f, View(gradient.dout), View(tile.value, true), 0.0f, dp, keys);
  for (int64_t i = 0; i < rows; ++i) {
    const VisibleKeys visible(tile, i);
    const int64_t count = visible.end - visible.begin;
    float* scores = p + i * keys + visible.begin;
    float* dscores = dp + i * keys + visible.begin;
    float delta = Dot(value_size, gradient.out.From(i).data, gradient.dout.From(i).data);
    if (tile.soft_cap > 0) {
      SoftCapRow(count, tile.soft_cap, scores);
      SoftCapBackwardRow(count, tile.soft_cap, std::exchange(delta, 0.0f), scores, dscores);
    }
    AddAlibi(tile, i, visible, scores);
    SoftmaxBackwardRow(count, gradient.log_sum_exp[i], delta, tile.scale, scores, dscores);
    visible.HideOthers(keys, p + i * keys);
    visible.HideOthers(keys, dp + i * keys);
  }
  Sgemm(keys, value_size, rows, 1.0f, {p, keys, true}, View(gradient.dout), 1.0f, dvalue,
        tile.value.stride);
  Sgemm(keys, size, rows, 1.0f, {dp, keys, true}, View(tile.query), 1.0f, dkey, tile.key.stride);
  Sgemm(rows, size, keys, 1.0f, {dp, keys, false}, View(tile.key), add_to_dquery ? 1.0f : 0.0f,
        dquery, dquery_stride);
}

}  // namespace trimtab
