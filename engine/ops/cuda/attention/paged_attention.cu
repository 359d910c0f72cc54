// Attention over a paged cache, a warp for each row and query head: 32 keys at a time, with a
// running maximum (Milakov & Gimelshein, arXiv:1805.02867). Contract in
// engine/ops/attention/paged_attention.h.
#include "engine/ops/cuda/elementwise/fill.h"
#include "engine/ops/cuda/kernel.h"

namespace trimtab {
namespace {

constexpr int kThreads = 128;
constexpr int kWarps = kThreads / kWarpSize;
constexpr int kBlocksPerMultiprocessor = 16;
constexpr int kUnroll = 8;  // entries of the cache that a thread has on their way at once
// Blocks that a multiprocessor runs at once. Left to itself the compiler makes room for more, and
// spills.
constexpr int kResidentBlocks = 6;

TRIMTAB_HOST_DEVICE float EntryToFloat(int8_t value) { return static_cast<float>(value); }
template <typename T>
TRIMTAB_HOST_DEVICE float EntryToFloat(T value) {
  return ToFloat(value);
}

// Where rows and cache lie.
struct PagedGeometry {
  const int32_t* positions;
  const int32_t* segment_of;
  const int32_t* blocks;
  const float* scales;  // nullptr without
  int64_t most_blocks;
  int64_t cache_blocks;
  int64_t block_size;
  int64_t heads;
  int64_t kv_heads;
  int64_t head_size;
  int64_t value_size;
  int64_t width;  // of a row of qkv
  bool values_in_keys;
  float score_scale;
  ScoreOptions scores;

  PagedGeometry(const AttentionShape& s, const PagedCache& cache)
      : positions(Data<const int32_t>(s.rows.positions)),
        segment_of(Data<const int32_t>(s.rows.paged->segment_of)),
        blocks(Data<const int32_t>(s.rows.paged->blocks)),
        scales(Data<const float>(cache.scales)),
        most_blocks(s.rows.paged->blocks.dim(1)),
        cache_blocks(cache.blocks()),
        block_size(cache.block_size()),
        heads(s.heads),
        kv_heads(s.kv_heads),
        head_size(s.head_size),
        value_size(s.value_size()),
        width(s.qkv_size()),
        values_in_keys(s.values_in_keys),
        score_scale(static_cast<float>(s.score_scale())),
        scores(s.scores) {}

  // The head of a block that holds a sequence's token.
  TRIMTAB_HOST_DEVICE int64_t HeadOfBlock(int64_t sequence, int64_t position,
                                          int64_t kv_head) const {
    const int64_t block = blocks[sequence * most_blocks + position / block_size];
    return block * kv_heads + kv_head;
  }
  TRIMTAB_HOST_DEVICE int64_t KeyAt(int64_t head_of_block, int64_t position) const {
    return head_of_block * head_size * block_size + position % block_size;  // dims block_size apart
  }
  TRIMTAB_HOST_DEVICE int64_t ValueAt(int64_t head_of_block, int64_t position) const {
    return (head_of_block * block_size + position % block_size) * head_size;
  }
  // Where dim `d` of a value lies, in the keys where there are no values.
  TRIMTAB_HOST_DEVICE int64_t ValueDimAt(int64_t head_of_block, int64_t position, int64_t d) const {
    if (!values_in_keys) return ValueAt(head_of_block, position) + d;
    return KeyAt(head_of_block, position) + (head_size - value_size + d) * block_size;
  }
  TRIMTAB_HOST_DEVICE int64_t ScaleAt(bool value, int64_t head_of_block, int64_t position) const {
    const int64_t half = value && !values_in_keys ? cache_blocks * kv_heads : 0;
    return (half + head_of_block) * block_size + position % block_size;
  }
};

template <typename T, typename Entry>
__global__ void __launch_bounds__(kThreads, kResidentBlocks)
    PagedAttentionKernel(PagedGeometry g, const T* __restrict__ qkv, const Entry* __restrict__ keys,
                         const Entry* __restrict__ values, const T* __restrict__ sinks,
                         int64_t items, T* __restrict__ out) {
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
  float* sums = SharedMemory<float>() + warp * g.value_size;
  // What each of 32 keys counts for, and where its value begins.
  __shared__ float factors[kWarps][kWarpSize];
  __shared__ int64_t places[kWarps][kWarpSize];
  const int64_t value_stride = g.values_in_keys ? g.block_size : 1;
  const int64_t stride = int64_t{gridDim.x} * kWarps;
  for (int64_t item = int64_t{blockIdx.x} * kWarps + warp; item < items; item += stride) {
    const int64_t row = item / g.heads;
    const int64_t head = item % g.heads;
    const int64_t kv_head = head / (g.heads / g.kv_heads);
    const int64_t sequence = g.segment_of[row];
    const int64_t last = g.positions[row];
    const int64_t begin =
        g.scores.window > 0 && last + 1 > g.scores.window ? last + 1 - g.scores.window : int64_t{0};
    const T* query = qkv + row * g.width + head * g.head_size;
    const float slope = AlibiSlope(g.scores.alibi_first + head, g.scores.alibi_heads);
    for (int64_t d = lane; d < g.value_size; d += kWarpSize) sums[d] = 0;
    float highest = -INFINITY;
    float total = 0;
    for (int64_t first = begin; first <= last; first += kWarpSize) {
      const int64_t position = first + lane;
      float score = -INFINITY;
      float value_scale = 1;
      if (position <= last) {
        const int64_t at = g.HeadOfBlock(sequence, position, kv_head);
        places[warp][lane] = g.ValueDimAt(at, position, 0);
        const Entry* key = keys + g.KeyAt(at, position);
        float dot = 0;
#pragma unroll kUnroll
        for (int64_t d = 0; d < g.head_size; ++d) {
          dot += ToFloat(query[d]) * EntryToFloat(key[d * g.block_size]);
        }
        if (g.scales != nullptr) {
          dot *= g.scales[g.ScaleAt(false, at, position)];
          value_scale = g.scales[g.ScaleAt(true, at, position)];
        }
        score = dot * g.score_scale;
        if (g.scores.soft_cap > 0) {
          const float cap = static_cast<float>(g.scores.soft_cap);
          score = cap * Tanh(score / cap);
        }
        score -= slope * static_cast<float>(last - position);
      }
      const float now = WarpMax(score);
      const float top = highest > now ? highest : now;
      const float keep = Exp(highest - top);
      const float weight = position <= last ? Exp(score - top) : 0.0f;
      total = total * keep + WarpSum(weight);
      highest = top;
      factors[warp][lane] = weight * value_scale;
      __syncwarp();
      const int64_t rest = last + 1 - first;
      const int count = rest < kWarpSize ? static_cast<int>(rest) : kWarpSize;
      for (int64_t d = lane; d < g.value_size; d += kWarpSize) {
        float sum = sums[d] * keep;
#pragma unroll kUnroll
        for (int j = 0; j < count; ++j) {
          sum += factors[warp][j] * EntryToFloat(values[places[warp][j] + d * value_stride]);
        }
        sums[d] = sum;
      }
      __syncwarp();  // all lanes have read what the next keys overwrite
    }
    float share = 1 / total;
    if (sinks != nullptr) {
      const float log_sum_exp = highest + std::log(total);
      share *= MergeAttention(log_sum_exp, ToFloat(sinks[head])).keep;
    }
    for (int64_t d = lane; d < g.value_size; d += kWarpSize) {
      out[item * g.value_size + d] = FromFloat<T>(sums[d] * share);
    }
  }
}

template <typename Entry>
TRIMTAB_HOST_DEVICE Entry ToEntry(float value) {
  if constexpr (std::is_same_v<Entry, int8_t>) {
    return static_cast<int8_t>(rintf(value));
  } else {
    return FromFloat<Entry>(value);
  }
}

// A warp for the keys, or the values, of one row and head. `largest` is the type's, where entries
// have scales; 0 where they have none.
template <typename T, typename Entry>
__global__ void __launch_bounds__(kThreads)
    StoreKvKernel(PagedGeometry g, const T* __restrict__ qkv, float largest, float* scales,
                  Entry* __restrict__ keys, Entry* __restrict__ values, int64_t items) {
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const int64_t stride = int64_t{gridDim.x} * kWarps;
  const int64_t parts = g.values_in_keys ? g.kv_heads : 2 * g.kv_heads;
  for (int64_t item = int64_t{blockIdx.x} * kWarps + threadIdx.x / kWarpSize; item < items;
       item += stride) {
    const int64_t row = item / parts;
    const int64_t part = item % parts;
    const bool value = part >= g.kv_heads;
    const int64_t position = g.positions[row];
    const int64_t at = g.HeadOfBlock(g.segment_of[row], position, part % g.kv_heads);
    const T* from = qkv + row * g.width + (g.heads + part) * g.head_size;
    float scale = 1;
    if (largest > 0) {
      float most = 0;
      for (int64_t d = lane; d < g.head_size; d += kWarpSize) {
        const float magnitude = fabsf(ToFloat(from[d]));
        most = most > magnitude ? most : magnitude;
      }
      most = WarpMax(most);
      if (most > 0) scale = most / largest;
      if (lane == 0) scales[g.ScaleAt(value, at, position)] = scale;
    }
    const float inverse = 1.0f / scale;
    for (int64_t d = lane; d < g.head_size; d += kWarpSize) {
      const Entry entry = ToEntry<Entry>(ToFloat(from[d]) * inverse);
      if (value) {
        values[g.ValueAt(at, position) + d] = entry;
      } else {
        keys[g.KeyAt(at, position) + d * g.block_size] = entry;
      }
    }
  }
}

// Calls function with null pointers of the types of rows and of entries.
template <typename Function>
void DispatchTypes(DType rows, DType entries, const Function& function) {
  DispatchFloat(rows, [&](auto* row) {
    if (entries == DType::kI8) return function(row, static_cast<int8_t*>(nullptr));
    if (entries == DType::kF8E4M3) return function(row, static_cast<E4M3*>(nullptr));
    DispatchFloat(entries, [&](auto* entry) { function(row, entry); });
  });
}

dim3 GridOf(const LaunchContext& context, int64_t items) {
  return dim3(GridFor(context, items, kWarps, kBlocksPerMultiprocessor));
}

void PagedAttentionCuda(const AttentionShape& shape, const Tensor& qkv, const PagedCache& cache,
                        const Tensor& sinks, Tensor& out) {
  const LaunchContext context = ContextOf(qkv.device());
  const PagedGeometry geometry(shape, cache);
  const int64_t items = shape.tokens() * shape.heads;
  const size_t shared = static_cast<size_t>(kWarps * shape.value_size()) * sizeof(float);
  const Tensor& values = shape.values_in_keys ? cache.keys : cache.values;
  DispatchTypes(qkv.dtype(), cache.dtype(), [&](auto* row, auto* entry) {
    using T = std::remove_pointer_t<decltype(row)>;
    using Entry = std::remove_pointer_t<decltype(entry)>;
    Launch(context, PagedAttentionKernel<T, Entry>, GridOf(context, items), dim3(kThreads), shared,
           geometry, Data<const T>(qkv), Data<const Entry>(cache.keys), Data<const Entry>(values),
           Data<const T>(sinks), items, Data<T>(out));
  });
}

void StoreKvCuda(const AttentionShape& shape, const Tensor& qkv, const PagedCache& cache) {
  const LaunchContext context = ContextOf(qkv.device());
  const PagedGeometry geometry(shape, cache);
  const int64_t items = shape.tokens() * shape.kv_heads * (shape.values_in_keys ? 1 : 2);
  const DType entries = cache.dtype();
  const float largest = entries == DType::kI8 ? 127.0f : Fp8Max(entries);
  DispatchTypes(qkv.dtype(), entries, [&](auto* row, auto* entry) {
    using T = std::remove_pointer_t<decltype(row)>;
    using Entry = std::remove_pointer_t<decltype(entry)>;
    Launch(context, StoreKvKernel<T, Entry>, GridOf(context, items), dim3(kThreads), 0, geometry,
           Data<const T>(qkv), HasScales(entries) ? largest : 0.0f, Data<float>(cache.scales),
           Data<Entry>(cache.keys), Data<Entry>(cache.values), items);
  });
}

}  // namespace

void FillPagedAttentionOps(CudaOps& ops) {
  ops.store_kv = StoreKvCuda;
  ops.paged_attention = PagedAttentionCuda;
}

}  // namespace trimtab
