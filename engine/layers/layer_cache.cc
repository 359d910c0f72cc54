#include "engine/layers/layer_cache.h"

namespace trimtab {
namespace {

int64_t LatentSize(const ModelConfig& model) {
  return model.latent.qk_rope_head_dim + model.latent.kv_lora_rank;
}

}  // namespace

PagedCache NewLayerCache(Device& device, const ModelConfig& model, int64_t tp, int64_t blocks,
                         int64_t block_size, DType entries) {
  if (model.latent.used()) {
    return NewKeyCache(device, blocks, block_size, /*kv_heads=*/1, LatentSize(model), entries);
  }
  return NewPagedCache(device, blocks, block_size, model.kv_heads_of_rank(tp), model.head_size(),
                       entries);
}

int64_t LayerCacheValues(const ModelConfig& model, int64_t tp) {
  if (model.latent.used()) return LatentSize(model);
  return 2 * model.kv_heads_of_rank(tp) * model.head_size();
}

int64_t LayerCacheBytes(const ModelConfig& model, int64_t tp, DType entries) {
  if (model.latent.used()) return KeyCacheBytesPerToken(1, LatentSize(model), entries);
  return PagedCacheBytesPerToken(model.kv_heads_of_rank(tp), model.head_size(), entries);
}

}  // namespace trimtab
