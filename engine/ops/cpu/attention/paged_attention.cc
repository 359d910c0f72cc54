#include "engine/ops/cpu/attention/paged_attention.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "engine/base/units.h"
#include "engine/device/cpu/parallel.h"
#include "engine/ops/cpu/attention/attention_tile.h"
#include "engine/ops/cpu/attention/ordered_product.h"
#include "engine/ops/cpu/elementwise/convert.h"
#include "engine/ops/kernel.h"
#include "engine/ops/math.h"

namespace trimtab {
namespace {

// Query rows of one tile, over all heads that share a key/value head.
constexpr int64_t kTileRows = 64;

// Multiply-adds of scores and values that are worth waking a worker for: those of one row are few
// chains, which wait for one another.
constexpr int64_t kScoreGrain = kSpanGrain / 4;

// What the kernels need to know of a call.
struct Geometry {
  int64_t group;  // query heads of a key/value head
  int64_t tile;   // rows of a sequence in one tile
  int64_t block_size;
  int64_t head_size;
  int64_t value_size;
  int64_t width;  // floats of one row of qkv

  Geometry(const AttentionShape& s, const PagedCache& cache)
      : group(s.heads / s.kv_heads),
        tile(std::max<int64_t>(1, kTileRows / group)),
        block_size(cache.block_size()),
        head_size(s.head_size),
        value_size(s.value_size()),
        width(s.qkv_size()) {}

  // Of one block: its entries in fp32, and where they are in the keys, its values.
  int64_t block_floats() const { return block_size * (head_size + value_size); }
};

// Scratch of one worker: queries and results [rows of a tile, D or Dv] of all heads of the group,
// one converted block, and scores [the same rows, keys in whole blocks].
struct TileScratch {
  float* query;
  float* result;
  float* block;
  float* scores;

  TileScratch(const Geometry& g, float* memory)
      : query(memory),
        result(query + g.tile * g.group * g.head_size),
        block(result + g.tile * g.group * g.value_size),
        scores(block + g.block_floats()) {}
};

int64_t RoundToBlocks(int64_t tokens, int64_t block_size) {
  return CeilDiv(tokens, block_size) * block_size;
}

// x[i] *= factors[i / inner] or, transposed, factors[i % inner].
TRIMTAB_CLONES void ScaleRowsBy(int64_t rows, int64_t inner, const float* factors, float* x) {
  for (int64_t r = 0; r < rows; ++r) {
#pragma omp simd
    for (int64_t i = 0; i < inner; ++i) x[r * inner + i] *= factors[r];
  }
}
TRIMTAB_CLONES void ScaleColumnsBy(int64_t rows, int64_t inner, const float* factors, float* x) {
  for (int64_t r = 0; r < rows; ++r) {
#pragma omp simd
    for (int64_t i = 0; i < inner; ++i) x[r * inner + i] *= factors[i];
  }
}

TRIMTAB_CLONES void ScaledCopy(int64_t n, float factor, const float* x, float* y) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) y[i] = x[i] * factor;
}

// y [n, m] = the transpose of x [m, n].
TRIMTAB_CLONES void TransposeBlock(int64_t m, int64_t n, const float* x, float* y) {
  for (int64_t i = 0; i < n; ++i) {
#pragma omp simd
    for (int64_t j = 0; j < m; ++j) y[i * m + j] = x[j * n + i];
  }
}

TRIMTAB_CLONES void WidenInt8(int64_t n, const int8_t* x, float* y) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) y[i] = static_cast<float>(x[i]);
}

enum class Part { kKeys, kValues };

// Entries of one head of one block, in fp32: keys [D, block size] or values [block size, Dv].
class BlockReader {
 public:
  BlockReader(const AttentionShape& s, const PagedCache& cache, Part part, int64_t kv_head)
      : cache_(cache),
        part_(s.values_in_keys ? Part::kKeys : part),
        tensor_(part_ == Part::kKeys ? cache.keys : cache.values),
        kv_heads_(s.kv_heads),
        kv_head_(kv_head),
        size_(s.head_size * cache.block_size()),
        value_size_(s.value_size()),
        transposes_(part_ != part) {}

  /// Asks for a block of memory: each lies elsewhere, which caches do not foresee.
  void Prefetch(int64_t block) const {
    constexpr int64_t kLineBytes = 64;
    const auto* first = static_cast<const char*>(Stored(block));
    for (int64_t i = 0; i < size_ * SizeOf(tensor_.dtype()); i += kLineBytes) {
      __builtin_prefetch(first + i);
    }
  }

  /// `memory` holds Geometry::block_floats.
  const float* Read(int64_t block, float* memory) const {
    const float* entries = Entries(block, memory);
    if (!transposes_) return entries;
    const int64_t tokens = cache_.block_size();
    float* values = memory + size_;
    TransposeBlock(value_size_, tokens, entries + size_ - value_size_ * tokens, values);
    return values;
  }

 private:
  int64_t IndexOf(int64_t block) const { return block * kv_heads_ + kv_head_; }
  const void* Stored(int64_t block) const {
    return ElementAt(tensor_.dtype(), tensor_.raw(), IndexOf(block) * size_);
  }

  // As they are stored.
  const float* Entries(int64_t block, float* memory) const {
    const void* stored = Stored(block);
    if (tensor_.dtype() == DType::kF32) return static_cast<const float*>(stored);
    if (tensor_.dtype() == DType::kI8) {
      WidenInt8(size_, static_cast<const int8_t*>(stored), memory);
    } else {
      WidenSpan(tensor_.dtype(), size_, stored, memory);
    }
    if (cache_.scales.defined()) Scale(IndexOf(block), memory);
    return memory;
  }

  void Scale(int64_t index, float* memory) const {
    const int64_t tokens = cache_.block_size();
    const int64_t half = part_ == Part::kKeys ? 0 : cache_.blocks() * kv_heads_;
    const float* scales = cache_.scales.f32() + (half + index) * tokens;
    const int64_t head_size = size_ / tokens;
    if (part_ == Part::kKeys) {
      ScaleColumnsBy(head_size, tokens, scales, memory);
    } else {
      ScaleRowsBy(tokens, head_size, scales, memory);
    }
  }

  const PagedCache& cache_;
  Part part_;
  const Tensor& tensor_;
  int64_t kv_heads_;
  int64_t kv_head_;
  int64_t size_;
  int64_t value_size_;
  bool transposes_;
};

// Some rows of a segment, for the heads that share one key/value head.
struct Tile {
  int64_t segment;
  int64_t first_row;  // of the pass
  int64_t rows;
  int64_t first_position;
};

std::vector<Tile> TilesOf(const PagedSegments& rows, int64_t tile) {
  std::vector<Tile> tiles;
  for (size_t s = 0; s < rows.segments.size(); ++s) {
    const PagedSegment& each = rows.segments[s];
    for (int64_t done = 0; done < each.rows; done += tile) {
      tiles.push_back({static_cast<int64_t>(s), each.first_row + done,
                       std::min(tile, each.rows - done), each.first_position + done});
    }
  }
  // The longest first, so that the workers end together.
  std::stable_sort(tiles.begin(), tiles.end(), [](const Tile& a, const Tile& b) {
    return a.rows * (a.first_position + a.rows) > b.rows * (b.first_position + b.rows);
  });
  return tiles;
}

class TileAttention {
 public:
  TileAttention(const AttentionShape& shape, const PagedCache& cache, const float* sinks)
      : shape_(shape),
        rows_(*shape.rows.paged),
        cache_(cache),
        sinks_(sinks),
        geometry_(shape, cache) {}

  void Run(const Tile& tile, int64_t kv_head, const float* qkv, float* out, float* memory) const {
    const Geometry& g = geometry_;
    const TileScratch scratch(g, memory);
    const int64_t count = tile.rows * g.group;  // row r of head h is number r * group + h
    for (int64_t r = 0; r < tile.rows; ++r) {
      ScaledCopy(g.group * g.head_size, static_cast<float>(shape_.score_scale()),
                 qkv + (tile.first_row + r) * g.width + kv_head * g.group * g.head_size,
                 scratch.query + r * g.group * g.head_size);
    }
    // From the block that holds the first key which any of the rows sees.
    const int64_t window = shape_.scores.window;
    const int64_t first_seen =
        window > 0 ? std::max<int64_t>(0, tile.first_position + 1 - window) : 0;
    const int64_t first_block = first_seen / g.block_size;
    const int64_t first_key = first_block * g.block_size;
    const int64_t end = tile.first_position + tile.rows;
    const int64_t stride = RoundToBlocks(end, g.block_size) - first_key;
    std::fill_n(scratch.scores, count * stride, 0.0f);
    // Whole blocks: what the last one holds behind `end` is no key, and of no weight.
    ForEachBlock(tile, Part::kKeys, kv_head, first_block, end, scratch.block,
                 [&](int64_t column, int64_t, const float* keys) {
                   OrderedProduct(count, g.block_size, g.head_size, {scratch.query, g.head_size},
                                  {keys, g.block_size}, {scratch.scores + column, stride});
                 });
    std::vector<float> factors(static_cast<size_t>(count));
    for (int64_t i = 0; i < count; ++i) {
      const int64_t head = kv_head * g.group + i % g.group;
      factors[static_cast<size_t>(i)] = WeighRow(tile.first_position + i / g.group - first_key,
                                                 head, stride, scratch.scores + i * stride);
    }
    std::fill_n(scratch.result, count * g.value_size, 0.0f);
    ForEachBlock(tile, Part::kValues, kv_head, first_block, end, scratch.block,
                 [&](int64_t column, int64_t tokens, const float* values) {
                   OrderedProduct(count, g.value_size, tokens, {scratch.scores + column, stride},
                                  {values, g.value_size}, {scratch.result, g.value_size});
                 });
    for (int64_t i = 0; i < count; ++i) {
      const int64_t row = tile.first_row + i / g.group;
      const int64_t head = kv_head * g.group + i % g.group;
      ScaledCopy(g.value_size, factors[static_cast<size_t>(i)], scratch.result + i * g.value_size,
                 out + (row * shape_.heads + head) * g.value_size);
    }
  }

 private:
  // Calls visit(first key's column, keys, entries) for the blocks up to key `end`.
  template <typename Visit>
  void ForEachBlock(const Tile& tile, Part part, int64_t kv_head, int64_t first_block, int64_t end,
                    float* memory, const Visit& visit) const {
    const BlockReader reader(shape_, cache_, part, kv_head);
    const int32_t* table = rows_.blocks.i32() + tile.segment * rows_.blocks.dim(1);
    const int64_t size = geometry_.block_size;
    for (int64_t block = first_block; block * size < end; ++block) {
      if ((block + 1) * size < end) {
        reader.Prefetch(table[block + 1]);
      } else if (part == Part::kKeys) {
        BlockReader(shape_, cache_, Part::kValues, kv_head).Prefetch(table[first_block]);
      }
      visit((block - first_block) * size, std::min(size, end - block * size),
            reader.Read(table[block], memory));
    }
  }

  // The weights of the keys that a row sees, of which `last` is the last; 0 of all others. Returns
  // what the sum of the values that they weigh is multiplied by.
  float WeighRow(int64_t last, int64_t head, int64_t stride, float* scores) const {
    const ScoreOptions& options = shape_.scores;
    const int64_t begin = options.window > 0 ? std::max<int64_t>(0, last + 1 - options.window) : 0;
    float sum = 0;
    const float log_sum_exp =
        WeighScores({.soft_cap = static_cast<float>(options.soft_cap),
                     .slope = AlibiSlope(options.alibi_first + head, options.alibi_heads),
                     .last = last - begin},
                    last + 1 - begin, scores + begin, &sum);
    std::fill(scores, scores + begin, 0.0f);
    std::fill(scores + last + 1, scores + stride, 0.0f);
    if (sinks_ == nullptr) return 1.0f / sum;
    return MergeAttention(log_sum_exp, sinks_[head]).keep / sum;
  }

  const AttentionShape& shape_;
  const PagedSegments& rows_;
  const PagedCache& cache_;
  const float* sinks_;
  Geometry geometry_;
};

}  // namespace

int64_t PagedAttentionScratchCpu(const AttentionShape& shape, const PagedCache& cache) {
  const Geometry g(shape, cache);
  int64_t most = 0;
  for (const PagedSegment& each : shape.rows.paged->segments) {
    const int64_t keys = RoundToBlocks(each.end_position(), g.block_size);
    const int64_t count = std::min(g.tile, each.rows) * g.group;
    most = std::max(most, count * keys);
  }
  return g.tile * g.group * (g.head_size + g.value_size) + g.block_floats() + most;
}

void PagedAttentionCpu(int threads, const AttentionShape& shape, const float* qkv,
                       const PagedCache& cache, const float* sinks, float* out, float* scratch) {
  const PagedSegments& rows = *shape.rows.paged;
  const TileAttention attention(shape, cache, sinks);
  const std::vector<Tile> tiles = TilesOf(rows, Geometry(shape, cache).tile);
  const int64_t each = PagedAttentionScratchCpu(shape, cache);
  const int64_t work =
      rows.visible_scores(shape.scores) * shape.heads * (shape.head_size + shape.value_size());
  const auto workers = static_cast<int>(std::clamp<int64_t>(work / kScoreGrain, 1, threads));
  ParallelForNeighbours(workers, std::ssize(tiles) * shape.kv_heads, [&](int64_t item, int worker) {
    attention.Run(tiles[static_cast<size_t>(item / shape.kv_heads)], item % shape.kv_heads, qkv,
                  out, scratch + worker * each);
  });
}

}  // namespace trimtab
