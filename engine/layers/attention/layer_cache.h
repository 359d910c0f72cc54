// What a layer's mixer keeps of the tokens before, on one rank.
#pragma once

#include "engine/config/model/layer_spec.h"
#include "engine/ops/attention/paged_attention.h"

namespace trimtab {

/// The cache of one layer on one of `tp` tensor-parallel ranks: its share of keys and values; of
/// latent attention the compressed vector and the part of the keys that turns by position, whole on
/// each of them (DeepSeek-V2, arXiv:2405.04434, section 2.1).
PagedCache NewLayerCache(Device& device, const MixerSpec& mixer, int64_t tp, int64_t blocks,
                         int64_t block_size, DType entries);

/// Keys and values of one token in it, without scales.
int64_t LayerCacheValues(const MixerSpec& mixer, int64_t tp);
/// Bytes of one token in it, with scales.
int64_t LayerCacheBytes(const MixerSpec& mixer, int64_t tp, DType entries);

}  // namespace trimtab
