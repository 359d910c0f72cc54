// Attention of one tile: some queries of one head against all keys that they may see. What the cpu
// kernels of attention.h and attention_block.h are made of; each call is one worker's.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

namespace trimtab {

inline constexpr int64_t kQueryTile = 64;  // query rows of one tile, at most

/// The rows of a head, from one token on.
struct HeadRows {
  const float* data = nullptr;
  int64_t stride = 0;  // between tokens, in floats

  HeadRows From(int64_t token) const { return {data + token * stride, stride}; }
};

/// Returns how many keys a query sees at most, given the window (0 = none) and its position in its
/// document (nullptr = it sees all before it).
inline int64_t MostVisibleKeys(int64_t window, const int32_t* position) {
  constexpr int64_t kAll = std::numeric_limits<int64_t>::max() / 2;
  const int64_t most = window > 0 ? window : kAll;
  return position != nullptr ? std::min(most, int64_t{*position} + 1) : most;
}

struct AttentionTile {
  int64_t rows = 0;  // queries
  int64_t keys = 0;
  /// Keys up to the last that row 0 sees; each row sees one more than the one before it, at most
  /// all.
  int64_t seen = 0;
  int64_t window = 0;  // keys that a row sees at most, the last ones; 0 = any number
  const int32_t* positions = nullptr;  // a row at position p sees p + 1 keys at most; nullptr = any
  float scale = 1;                     // of the scores
  float soft_cap = 0;                  // 0 = none
  float slope = 0;         // ALiBi: what a score loses per key before the last that the row sees
  int64_t head_size = 0;   // D
  int64_t value_size = 0;  // Dv
  HeadRows query;
  HeadRows key;
  HeadRows value;

  /// Returns how many keys row `row` sees at most, the last ones up to its own.
  int64_t MostKeys(int64_t row) const {
    return MostVisibleKeys(window, positions != nullptr ? positions + row : nullptr);
  }
};

/// What becomes of the `n` scores of one query, the visible ones, before the softmax.
struct ScoreRow {
  float soft_cap = 0;  // 0 = none
  float slope = 0;     // ALiBi: what a score loses per key before key `last`
  int64_t last = 0;
};

/// Turns `scores` [n] into their weights e^(score - the highest), whose sum it puts into `sum`;
/// returns the log-sum-exp.
float WeighScores(const ScoreRow& row, int64_t n, float* scores, float* sum);

/// out [rows, Dv], `out_stride` apart, = the sums of the values weighted by e^(score - the row's
/// highest); of each row the sum of the weights, and the log-sum-exp of its scores. `scratch` holds
/// rows * keys floats.
void ForwardTile(const AttentionTile& tile, float* out, int64_t out_stride, float* sums,
                 float* log_sum_exp, float* scratch);
/// Divides each row of such an `out` by its sum: the attention over the tile's keys.
void NormaliseTile(const AttentionTile& tile, const float* sums, float* out, int64_t out_stride);
/// Adds a tile's result `part` [rows, Dv], not yet divided by `sums`, to the attention over other
/// keys, `out` and `log_sum_exp`: each weighs as much as the scores it is of.
void MergeTile(const AttentionTile& tile, const float* part, const float* sums,
               const float* part_log_sum_exp, float* out, int64_t out_stride, float* log_sum_exp);

/// What flows back into a tile: its rows of the attention's result and of its gradient, and the
/// log-sum-exp [rows] of all that they saw.
struct TileGradient {
  HeadRows out;
  HeadRows dout;
  const float* log_sum_exp = nullptr;
};

/// Adds to dkey and dvalue, which lie as key and value do; dquery, as query does, is overwritten,
/// or added to. `scratch` holds 2 * rows * keys floats.
void BackwardTile(const AttentionTile& tile, const TileGradient& gradient, float* dquery,
                  int64_t dquery_stride, bool add_to_dquery, float* dkey, float* dvalue,
                  float* scratch);

}  // namespace trimtab
