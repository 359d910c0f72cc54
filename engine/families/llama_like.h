// What families after Llama share: defaults, keys of config.json, names of tensors.
#pragma once

#include "engine/families/family.h"

namespace trimtab {

/// Returns the defaults of Llama's class.
ModelConfig LlamaDefaults();

/// Writes Llama's keys of config.json under another architecture.
nlohmann::json WriteLlamaLike(const ModelConfig& model, const char* architecture);

/// Writes the key "sliding_window": null for a model without one.
void WriteWindow(const ModelConfig& model, nlohmann::json& config);

/// Writes the key "layer_types": which layers have the window.
void WriteLayerTypes(const ModelConfig& model, nlohmann::json& config);

/// Writes the scale and the soft caps of scores and logits, under Gemma's keys.
void WriteGemmaScores(const ModelConfig& model, nlohmann::json& config);

/// Returns `rows` with the prefix and the buffers of Llama.
TensorNames LlamaLikeTensors(std::vector<TensorRows> rows, TensorRows fused = {});

// Rows of tensors, which a family puts together.

/// Everything but norms in front of attention and MLP, and the MLP's first projection.
inline constexpr TensorRow kLlamaTensors[] = {
    {"embedding.word_embeddings", {"model.embed_tokens"}},
    {"decoder.layers.*.self_attention.linear_qkv",
     {"model.layers.*.self_attn.q_proj", "model.layers.*.self_attn.k_proj",
      "model.layers.*.self_attn.v_proj"},
     TensorForm::kStacked},
    {"decoder.layers.*.self_attention.q_layernorm", {"model.layers.*.self_attn.q_norm"}},
    {"decoder.layers.*.self_attention.k_layernorm", {"model.layers.*.self_attn.k_norm"}},
    {"decoder.layers.*.self_attention.linear_proj", {"model.layers.*.self_attn.o_proj"}},
    {"decoder.layers.*.mlp.linear_fc2", {"model.layers.*.mlp.down_proj"}},
    {"decoder.final_layernorm", {"model.norm"}},
    {"output_layer", {"lm_head"}},
};
inline constexpr TensorRow kLlamaNorms[] = {
    {"decoder.layers.*.input_layernorm", {"model.layers.*.input_layernorm"}},
    {"decoder.layers.*.pre_mlp_layernorm", {"model.layers.*.post_attention_layernorm"}},
};
/// Norms before and after attention and MLP, or after them alone.
inline constexpr TensorRow kSandwichNorms[] = {
    {"decoder.layers.*.input_layernorm", {"model.layers.*.input_layernorm"}},
    {"decoder.layers.*.post_attention_layernorm", {"model.layers.*.post_attention_layernorm"}},
    {"decoder.layers.*.pre_mlp_layernorm", {"model.layers.*.pre_feedforward_layernorm"}},
    {"decoder.layers.*.post_mlp_layernorm", {"model.layers.*.post_feedforward_layernorm"}},
};
inline constexpr TensorRow kGateAndUp[] = {
    {"decoder.layers.*.mlp.linear_fc1",
     {"model.layers.*.mlp.gate_proj", "model.layers.*.mlp.up_proj"},
     TensorForm::kStacked},
};

/// A router, and experts each in tensors of its own.
inline constexpr TensorRow kExpertsByNumber[] = {
    {"decoder.layers.*.mlp.router", {"model.layers.*.mlp.gate"}},
    {"decoder.layers.*.mlp.experts.linear_fc1",
     {"model.layers.*.mlp.experts.*.gate_proj", "model.layers.*.mlp.experts.*.up_proj"},
     TensorForm::kExperts},
    {"decoder.layers.*.mlp.experts.linear_fc2",
     {"model.layers.*.mlp.experts.*.down_proj"},
     TensorForm::kExperts},
};
/// The same experts as Transformers 5 may save them.
inline constexpr TensorRow kFusedExperts[] = {
    {"decoder.layers.*.mlp.router", {"model.layers.*.mlp.gate"}},
    {"decoder.layers.*.mlp.experts.linear_fc1.weight",
     {"model.layers.*.mlp.experts.gate_up_proj"},
     TensorForm::kWholeExperts},
    {"decoder.layers.*.mlp.experts.linear_fc2.weight",
     {"model.layers.*.mlp.experts.down_proj"},
     TensorForm::kWholeExperts},
};

}  // namespace trimtab
