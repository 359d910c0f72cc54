#include "engine/ops/cpu/attention/attention.h"

#include <algorithm>

#include "engine/base/units.h"
#include "engine/device/cpu/parallel.h"
#include "engine/ops/cpu/attention/attention_tile.h"

namespace trimtab {
namespace {

int64_t TileRows(const AttentionShape& shape) { return std::min(kQueryTile, shape.rows.sequence); }

// Where the parts of one (sequence, query head) pair begin, in qkv or dqkv and in out or dout.
struct HeadOffsets {
  int64_t sequence;
  int64_t query;
  int64_t key;
  int64_t value;
  int64_t out;

  HeadOffsets(const AttentionShape& s, int64_t sequence_index, int64_t head)
      : sequence(sequence_index) {
    const int64_t token = sequence_index * s.rows.sequence;
    const int64_t kv_head = head / (s.heads / s.kv_heads);
    query = token * s.qkv_size() + head * s.head_size;
    key = token * s.qkv_size() + (s.heads + kv_head) * s.head_size;
    value =
        token * s.qkv_size() + s.query_size() + s.kv_heads * s.head_size + kv_head * s.value_size();
    out = token * s.out_size() + head * s.value_size();
  }
};

// Returns the positions of the rows of a sequence from `first` on; nullptr without documents.
const int32_t* PositionsFrom(const AttentionShape& s, int64_t sequence_index, int64_t first) {
  if (!s.rows.positions.defined()) return nullptr;
  return s.rows.positions.i32() + sequence_index * s.rows.sequence + first;
}

// Returns the first key that the queries from `first` on see: documents begin in their order.
int64_t FirstKey(const AttentionShape& s, int64_t sequence_index, int64_t first) {
  const int64_t most = MostVisibleKeys(s.scores.window, PositionsFrom(s, sequence_index, first));
  return std::max<int64_t>(0, first + 1 - most);
}

// The queries from `first` on, and every key that they see, up to the last of them.
AttentionTile TileAt(const AttentionShape& s, const HeadOffsets& at, int64_t head, int64_t first,
                     const float* qkv) {
  const int64_t rows = std::min(TileRows(s), s.rows.sequence - first);
  const int64_t width = s.qkv_size();
  const int64_t first_key = FirstKey(s, at.sequence, first);
  return {.rows = rows,
          .keys = first + rows - first_key,
          .seen = first + 1 - first_key,
          .window = s.scores.window,
          .positions = PositionsFrom(s, at.sequence, first),
          .scale = static_cast<float>(s.score_scale()),
          .soft_cap = static_cast<float>(s.scores.soft_cap),
          .slope = AlibiSlope(s.scores.alibi_first + head, s.scores.alibi_heads),
          .head_size = s.head_size,
          .value_size = s.value_size(),
          .query = HeadRows{qkv + at.query, width}.From(first),
          .key = HeadRows{qkv + at.key, width}.From(first_key),
          .value = HeadRows{qkv + at.value, width}.From(first_key)};
}

}  // namespace

int64_t AttentionForwardScratchCpu(const AttentionShape& shape) {
  return TileRows(shape) * shape.rows.sequence;
}

int64_t AttentionBackwardScratchCpu(const AttentionShape& shape) {
  return 2 * TileRows(shape) * shape.rows.sequence;
}

void AttentionForwardCpu(int threads, const AttentionShape& shape, const float* qkv, float* out,
                         float* log_sum_exp, float* scratch) {
  UseThreads(1);  // a tile is one worker's
  const int64_t tiles = CeilDiv(shape.rows.sequence, kQueryTile);
  const int64_t worker_scratch = AttentionForwardScratchCpu(shape);
  const int64_t out_width = shape.out_size();
  ParallelForEach(threads, shape.rows.batch * shape.heads * tiles, [&](int64_t item, int worker) {
    const int64_t pair = item / tiles;
    // The longest rows first, so that the workers end together.
    const int64_t first = (tiles - 1 - item % tiles) * kQueryTile;
    const HeadOffsets at(shape, pair / shape.heads, pair % shape.heads);
    const AttentionTile tile = TileAt(shape, at, pair % shape.heads, first, qkv);
    float* tile_out = out + at.out + first * out_width;
    float sums[kQueryTile];
    ForwardTile(tile, tile_out, out_width, sums, log_sum_exp + pair * shape.rows.sequence + first,
                scratch + worker * worker_scratch);
    NormaliseTile(tile, sums, tile_out, out_width);
  });
}

void AttentionBackwardCpu(int threads, const AttentionShape& shape, const float* qkv,
                          const float* out, const float* log_sum_exp, const float* dout,
                          float* dqkv, float* scratch) {
  UseThreads(1);
  const int64_t group = shape.heads / shape.kv_heads;
  const int64_t width = shape.qkv_size();
  const int64_t out_width = shape.out_size();
  const int64_t worker_scratch = AttentionBackwardScratchCpu(shape);
  // One worker per key/value head: its gradients are added up in one fixed order.
  ParallelForEach(threads, shape.rows.batch * shape.kv_heads, [&](int64_t item, int worker) {
    const int64_t sequence_index = item / shape.kv_heads;
    const int64_t first_head = item % shape.kv_heads * group;
    const HeadOffsets kv(shape, sequence_index, first_head);
    for (int64_t t = 0; t < shape.rows.sequence; ++t) {
      std::fill_n(dqkv + kv.key + t * width, shape.head_size, 0.0f);
      std::fill_n(dqkv + kv.value + t * width, shape.value_size(), 0.0f);
    }
    for (int64_t head = first_head; head < first_head + group; ++head) {
      const HeadOffsets at(shape, sequence_index, head);
      const int64_t row = (sequence_index * shape.heads + head) * shape.rows.sequence;
      for (int64_t first = 0; first < shape.rows.sequence; first += kQueryTile) {
        const TileGradient gradient = {.out = HeadRows{out + at.out, out_width}.From(first),
                                       .dout = HeadRows{dout + at.out, out_width}.From(first),
                                       .log_sum_exp = log_sum_exp + row + first};
        const int64_t keys = FirstKey(shape, sequence_index, first) * width;
        BackwardTile(TileAt(shape, at, head, first, qkv), gradient, dqkv + at.query + first * width,
                     width, /*add_to_dquery=*/false, dqkv + at.key + keys, dqkv + at.value + keys,
                     scratch + worker * worker_scratch);
      }
    }
  });
}

}  // namespace trimtab
