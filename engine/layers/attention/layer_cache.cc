#include "engine/layers/attention/layer_cache.h"

namespace trimtab {
namespace {

/// Keys of one token, their size, and whether values lie beside them.
struct CacheShape {
  int64_t heads = 0;
  int64_t head_size = 0;
  bool values = true;
};

CacheShape CacheShapeOf(const MixerSpec& mixer, int64_t tp) {
  if (const auto* latent = std::get_if<LatentSpec>(&mixer)) {
    const LatentConfig& sizes = latent->latent;
    return {1, sizes.qk_rope_head_dim + sizes.kv_lora_rank, /*values=*/false};
  }
  const auto& attention = std::get<AttentionSpec>(mixer);
  return {attention.kv_heads_of_rank(tp), attention.head_size};
}

}  // namespace

PagedCache NewLayerCache(Device& device, const MixerSpec& mixer, int64_t tp, int64_t blocks,
                         int64_t block_size, DType entries) {
  const CacheShape shape = CacheShapeOf(mixer, tp);
  return (shape.values ? NewPagedCache : NewKeyCache)(device, blocks, block_size, shape.heads,
                                                      shape.head_size, entries);
}

int64_t LayerCacheValues(const MixerSpec& mixer, int64_t tp) {
  const CacheShape shape = CacheShapeOf(mixer, tp);
  return (shape.values ? 2 : 1) * shape.heads * shape.head_size;
}

int64_t LayerCacheBytes(const MixerSpec& mixer, int64_t tp, DType entries) {
  const CacheShape shape = CacheShapeOf(mixer, tp);
  return (shape.values ? PagedCacheBytesPerToken : KeyCacheBytesPerToken)(shape.heads,
                                                                          shape.head_size, entries);
}

}  // namespace trimtab
