#include "engine/ops/cpu/attention/attention_block.h"

#include <algorithm>

#include "engine/base/units.h"
#include "engine/device/cpu/parallel.h"
#include "engine/ops/cpu/attention/attention_tile.h"

namespace trimtab {
namespace {

int64_t TileRows(const AttentionBlock& block) { return std::min(kQueryTile, block.size); }

// Where the block of one (sequence, query head) pair begins.
struct BlockOffsets {
  int64_t token;  // of all rows
  int64_t query;  // in qkv
  int64_t key;    // in kv
  int64_t value;
  int64_t out;     // in out and dout
  int64_t dquery;  // in dquery
  int64_t row;     // in log_sum_exp

  BlockOffsets(const AttentionShape& s, const AttentionBlock& block, int64_t sequence_index,
               int64_t head) {
    token = sequence_index * s.rows.sequence + block.query;
    const int64_t kv_head = head / (s.heads / s.kv_heads);
    query = token * s.qkv_size() + head * s.head_size;
    const int64_t first = (sequence_index * s.rows.sequence + block.key) * s.kv_size();
    key = first + kv_head * s.head_size;
    value = first + s.kv_heads * s.head_size + kv_head * s.value_size();
    out = token * s.out_size() + head * s.value_size();
    dquery = token * s.query_size() + head * s.head_size;
    row = (sequence_index * s.heads + head) * s.rows.sequence + block.query;
  }
};

// The block's queries from `first` on of a head, and every key that they see.
AttentionTile TileAt(const AttentionShape& s, int64_t ahead, const AttentionBlock& block,
                     const BlockOffsets& at, int64_t head, int64_t first, const float* qkv,
                     const float* kv) {
  const int64_t rows = std::min(TileRows(block), block.size - first);
  const int64_t kv_width = s.kv_size();
  return {
      .rows = rows,
      .keys = std::min(block.size, ahead + first + rows),
      .seen = ahead + first + 1,
      .window = s.scores.window,
      .positions = s.rows.positions.defined() ? s.rows.positions.i32() + at.token + first : nullptr,
      .scale = static_cast<float>(s.score_scale()),
      .soft_cap = static_cast<float>(s.scores.soft_cap),
      .slope = AlibiSlope(s.scores.alibi_first + head, s.scores.alibi_heads),
      .head_size = s.head_size,
      .value_size = s.value_size(),
      .query = HeadRows{qkv + at.query, s.qkv_size()}.From(first),
      .key = {kv + at.key, kv_width},
      .value = {kv + at.value, kv_width}};
}

// Returns true if the tile's first row, and so every row, sees only keys after the block's last:
// what hides the others moves on with the rows.
bool HidesAll(const AttentionTile& tile) { return tile.seen - tile.MostKeys(0) >= tile.keys; }

}  // namespace

int64_t AttentionBlockForwardScratchCpu(const AttentionShape& shape, const AttentionBlock& block) {
  return TileRows(block) * (block.size + shape.value_size());
}

int64_t AttentionBlockBackwardScratchCpu(const AttentionBlock& block) {
  return 2 * TileRows(block) * block.size;
}

void AttentionBlockForwardCpu(int threads, const AttentionShape& shape, const RowLayout& keys,
                              const AttentionBlock& block, const float* qkv, const float* kv,
                              float* out, float* log_sum_exp, float* scratch) {
  UseThreads(1);  // a tile is one worker's
  const int64_t tiles = CeilDiv(block.size, kQueryTile);
  const int64_t worker_scratch = AttentionBlockForwardScratchCpu(shape, block);
  const int64_t out_width = shape.out_size();
  const int64_t ahead = AheadOf(shape.rows, keys, block);
  ParallelForEach(threads, shape.rows.batch * shape.heads * tiles, [&](int64_t item, int worker) {
    const int64_t pair = item / tiles;
    // The longest rows first, so that the workers end together.
    const int64_t first = (tiles - 1 - item % tiles) * kQueryTile;
    const int64_t head = pair % shape.heads;
    const BlockOffsets at(shape, block, pair / shape.heads, head);
    const AttentionTile tile = TileAt(shape, ahead, block, at, head, first, qkv, kv);
    if (HidesAll(tile)) return;
    float* part = scratch + worker * worker_scratch;
    float sums[kQueryTile];
    float part_log_sum_exp[kQueryTile];
    ForwardTile(tile, part, shape.value_size(), sums, part_log_sum_exp,
                part + TileRows(block) * shape.value_size());
    MergeTile(tile, part, sums, part_log_sum_exp, out + at.out + first * out_width, out_width,
              log_sum_exp + at.row + first);
  });
}

void AttentionBlockBackwardCpu(int threads, const AttentionShape& shape, const RowLayout& keys,
                               const AttentionBlock& block, const float* qkv, const float* kv,
                               const float* out, const float* log_sum_exp, const float* dout,
                               float* dquery, float* dkv, float* scratch) {
  UseThreads(1);
  const int64_t group = shape.heads / shape.kv_heads;
  const int64_t out_width = shape.out_size();
  const int64_t ahead = AheadOf(shape.rows, keys, block);
  const int64_t worker_scratch = AttentionBlockBackwardScratchCpu(block);
  // One worker per key/value head: its gradients are added up in one fixed order.
  ParallelForEach(threads, shape.rows.batch * shape.kv_heads, [&](int64_t item, int worker) {
    const int64_t first_head = item % shape.kv_heads * group;
    for (int64_t head = first_head; head < first_head + group; ++head) {
      const BlockOffsets at(shape, block, item / shape.kv_heads, head);
      for (int64_t first = 0; first < block.size; first += kQueryTile) {
        const AttentionTile tile = TileAt(shape, ahead, block, at, head, first, qkv, kv);
        if (HidesAll(tile)) break;
        const TileGradient gradient = {.out = HeadRows{out + at.out, out_width}.From(first),
                                       .dout = HeadRows{dout + at.out, out_width}.From(first),
                                       .log_sum_exp = log_sum_exp + at.row + first};
        BackwardTile(tile, gradient, dquery + at.dquery + first * shape.query_size(),
                     shape.query_size(), /*add_to_dquery=*/true, dkv + at.key, dkv + at.value,
                     scratch + worker * worker_scratch);
      }
    }
  });
}

}  // namespace trimtab
