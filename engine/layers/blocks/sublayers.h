// The kinds of mixers and feed-forward parts that a layer may have. A new one is a class that
// satisfies its concept (sublayer.h), listed here, and its specification, listed in
// engine/config/model/layer_spec.h.
#pragma once

#include "engine/layers/attention/attention.h"
#include "engine/layers/attention/latent_attention.h"
#include "engine/layers/blocks/sublayer.h"
#include "engine/layers/mlp/mlp.h"
#include "engine/layers/moe/moe_layer.h"
#include "engine/layers/norm.h"

namespace trimtab {

static_assert(Mixer<SelfAttention>);
static_assert(Mixer<LatentAttention>);
static_assert(FeedForward<Mlp>);
static_assert(FeedForward<MoeLayer>);

using LayerMixer = OneOf<SelfAttention, LatentAttention>;
using LayerMlp = OneOf<Mlp, MoeLayer>;

static_assert(Mixer<LayerMixer> && std::same_as<LayerMixer::Spec, MixerSpec>);
static_assert(FeedForward<LayerMlp> && std::same_as<LayerMlp::Spec, FeedForwardSpec>);

/// Drops what is recomputed of a mixer's input and of the norm that made it, once the mixer has
/// used it.
void DropMixerInput(const LayerContext& context, NormSaved& norm, LayerMixer::Saved& saved);
/// Drops what is recomputed of the feed-forward part and of the norm before it, once it has run.
void DropMlp(const LayerContext& context, NormSaved& norm, LayerMlp::Saved& saved);

}  // namespace trimtab
