#include "engine/ops/cpu/attention/store_kv.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "engine/device/cpu/parallel.h"
#include "engine/ops/cpu/elementwise/convert.h"
#include "engine/ops/kernel.h"

namespace trimtab {
namespace {

// Elements of keys that are worth waking a worker for: each is stored on a line of its own.
constexpr int64_t kStoreGrain = 256;

float LargestMagnitude(int64_t n, const float* x) {
  float largest = 0;
  for (int64_t i = 0; i < n; ++i) largest = std::max(largest, std::abs(x[i]));
  return largest;
}

// Elements next to each other to where they are `stride` apart.
template <typename Bits>
void Scatter(int64_t n, const void* source, void* target, int64_t stride) {
  const auto* from = static_cast<const char*>(source);
  auto* to = static_cast<char*>(target);
  constexpr auto kSize = static_cast<int64_t>(sizeof(Bits));
  for (int64_t i = 0; i < n; ++i) std::memcpy(to + i * stride * kSize, from + i * kSize, kSize);
}

// x [n] as entries of the cache, `stride` apart; returns their scale.
float StoreHead(DType dtype, int64_t n, const float* x, void* entries, int64_t stride) {
  float scale = 1;
  if (HasScales(dtype)) {
    const float most = dtype == DType::kI8 ? 127.0f : Fp8Max(dtype);
    const float largest = LargestMagnitude(n, x);
    scale = largest > 0 ? largest / most : 1.0f;
  }
  const float inverse = 1.0f / scale;
  constexpr int64_t kChunk = 64;
  float scaled[kChunk];
  float rounded[kChunk];  // room for as many of any type
  for (int64_t begin = 0; begin < n; begin += kChunk) {
    const int64_t count = std::min(kChunk, n - begin);
    for (int64_t i = 0; i < count; ++i) scaled[i] = x[begin + i] * inverse;
    void* target = ElementAt(dtype, entries, begin * stride);
    if (dtype == DType::kI8) {
      auto* numbers = reinterpret_cast<int8_t*>(rounded);
      for (int64_t i = 0; i < count; ++i) numbers[i] = static_cast<int8_t>(std::lrint(scaled[i]));
    } else {
      RoundSpan(dtype, count, scaled, rounded);
    }
    if (stride == 1) {
      std::memcpy(target, rounded, static_cast<size_t>(count * SizeOf(dtype)));
    } else if (SizeOf(dtype) == 4) {
      Scatter<uint32_t>(count, rounded, target, stride);
    } else if (SizeOf(dtype) == 2) {
      Scatter<uint16_t>(count, rounded, target, stride);
    } else {
      Scatter<uint8_t>(count, rounded, target, stride);
    }
  }
  return scale;
}

}  // namespace

void StoreKvCpu(int threads, const AttentionShape& s, const float* qkv, const PagedCache& cache) {
  const PagedSegments& rows = *s.rows.paged;
  const int64_t size = cache.block_size();
  const int64_t entries = s.head_size * size;  // of one head of a block
  const int64_t most_blocks = rows.blocks.dim(1);
  const DType dtype = cache.dtype();
  const auto workers = static_cast<int>(
      std::clamp<int64_t>(s.tokens() * s.kv_heads * s.head_size / kStoreGrain, 1, threads));
  // As PagedAttentionCpu shares heads out: what a worker has stored it finds in its caches.
  ParallelForNeighbours(workers, s.tokens() * s.kv_heads, [&](int64_t item, int) {
    const int64_t row = item / s.kv_heads;
    const int64_t head = item % s.kv_heads;
    const int64_t position = s.rows.positions.i32()[row];
    const int64_t segment = rows.segment_of.i32()[row];
    const int64_t block = rows.blocks.i32()[segment * most_blocks + position / size];
    const int64_t slot = position % size;
    const int64_t index = block * s.kv_heads + head;
    const float* key = qkv + row * s.qkv_size() + (s.heads + head) * s.head_size;
    const float key_scale = StoreHead(
        dtype, s.head_size, key, ElementAt(dtype, cache.keys.raw(), index * entries + slot), size);
    if (cache.scales.defined()) cache.scales.f32()[index * size + slot] = key_scale;
    if (s.values_in_keys) return;
    const float* value = key + s.kv_heads * s.head_size;
    const float value_scale =
        StoreHead(dtype, s.head_size, value,
                  ElementAt(dtype, cache.values.raw(), index * entries + slot * s.head_size), 1);
    if (!cache.scales.defined()) return;
    cache.scales.f32()[(cache.blocks() * s.kv_heads + index) * size + slot] = value_scale;
  });
}

}  // namespace trimtab
