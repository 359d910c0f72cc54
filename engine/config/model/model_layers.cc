// The specifications that ModelConfig makes of a model's parts.
#include <cmath>

#include "engine/config/model/model_config.h"

namespace trimtab {
namespace {

/// GPT-2's rule: projections back into the residual stream start smaller by sqrt(2 L).
double OutputStd(const ModelConfig& model) {
  return model.init_std / std::sqrt(2.0 * static_cast<double>(model.num_layers));
}

std::optional<Rotary> RotaryOf(const ModelConfig& model, int64_t layer) {
  if (model.position != PositionKind::kRope) return std::nullopt;
  const bool own = model.window_rope_theta > 0 && model.window(layer) > 0;
  Rotary rotary(own ? model.window_rope_theta : model.rope_theta);
  rotary.dims = model.rotary_size();
  rotary.interleaved = model.rotary_interleaved;
  if (!own) rotary.scaling = model.rope_scaling;
  return rotary;
}

QueryKeyNorm QueryKeyNormOf(const ModelConfig& model) {
  if (!model.query_key_norm) return QueryKeyNorm::kNone;
  return model.query_key_norm_whole ? QueryKeyNorm::kWhole : QueryKeyNorm::kHeads;
}

AttentionSpec AttentionOf(const ModelConfig& model, int64_t layer) {
  return {.hidden_size = model.hidden_size,
          .heads = model.num_heads,
          .kv_heads = model.num_kv_heads,
          .head_size = model.head_size(),
          .value_size = model.value_size(),
          .scale = model.attention_scale,
          .soft_cap = model.attention_soft_cap,
          .window = model.window(layer),
          .alibi = model.position == PositionKind::kAlibi,
          .sinks = model.attention_sinks,
          .qkv_clip = model.qkv_clip,
          .rotary = RotaryOf(model, layer),
          .query_key_norm = QueryKeyNormOf(model),
          .norm = model.norm_spec(),
          .qkv_bias = model.has_qkv_bias(),
          .output_bias = model.bias,
          .init_std = model.init_std,
          .output_init_std = OutputStd(model)};
}

MlpSpec MlpOf(const ModelConfig& model, int64_t ffn) {
  return {.hidden_size = model.hidden_size,
          .ffn_hidden_size = ffn,
          .activation = model.activation,
          .bias = model.has_mlp_bias(),
          .init_std = model.init_std,
          .output_init_std = OutputStd(model)};
}

VocabSpec TableOf(const ModelConfig& model) {
  return {.vocab_size = model.vocab_size,
          .divisible_by = model.make_vocab_size_divisible_by,
          .width = model.embedding_size(),
          .init_std = model.init_std};
}

}  // namespace

NormSpec ModelConfig::norm_spec() const {
  return {.kind = norm,
          .epsilon = norm_epsilon,
          .bias = has_norm_bias(),
          .weight_plus_one = norm_weight_plus_one};
}

LayerSpec ModelConfig::layer(int64_t layer) const {
  LayerSpec spec;
  const AttentionSpec attention = AttentionOf(*this, layer);
  if (latent.used()) {
    spec.mixer = LatentSpec{attention, latent};
  } else {
    spec.mixer = attention;
  }
  if (moe.is_moe_layer(layer)) {
    spec.mlp =
        MoeSpec{MlpOf(*this, moe.ffn_hidden_size), MlpOf(*this, moe.shared_ffn_hidden_size), moe};
  } else {
    spec.mlp = MlpOf(*this, ffn_hidden_size);
  }
  spec.residual = {.kind = block, .norm = norm_spec(), .hidden_size = hidden_size};
  if (block == BlockKind::kDeepNorm) {
    spec.residual.stream_scale = std::sqrt(2.0f * static_cast<float>(num_layers));
  }
  return spec;
}

EmbeddingSpec ModelConfig::embedding() const {
  EmbeddingSpec spec = {.table = TableOf(*this),
                        .tied = tied_embeddings,
                        .hidden_size = hidden_size,
                        .scale = embedding_scale};
  if (position == PositionKind::kLearned) {
    spec.positions = max_sequence_length;
    spec.position_offset = position_offset;
  }
  if (embedding_norm) spec.norm = norm_spec();
  return spec;
}

HeadSpec ModelConfig::head() const {
  HeadSpec spec = {.table = TableOf(*this),
                   .tied = tied_embeddings,
                   .hidden_size = hidden_size,
                   .bias = output_bias,
                   .logit_scale = logit_scale,
                   .logit_soft_cap = logit_soft_cap};
  if (final_norm) spec.norm = norm_spec();
  return spec;
}

}  // namespace trimtab
