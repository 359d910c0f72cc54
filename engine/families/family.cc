#include "engine/families/family.h"

#include <cmath>

namespace trimtab {
namespace {

ModelConfig MakePreset(const PresetRow& row, ModelConfig model, void (*change)(ModelConfig&)) {
  model.name = row.name;
  model.vocab_size = row.vocab;
  model.hidden_size = row.hidden;
  model.num_layers = row.layers;
  model.num_heads = row.heads;
  model.num_kv_heads = row.kv_heads;
  model.ffn_hidden_size = row.ffn;
  model.max_sequence_length = row.max_sequence;
  model.tied_embeddings = row.tied;
  model.norm_epsilon = row.epsilon;
  model.rope_theta = row.rope_theta;
  model.head_dim = row.head_size;
  change(model);
  Simplify(model);
  return model;
}

}  // namespace

PresetGroup MakePresets(const char* title, const ModelConfig& defaults,
                        std::span<const PresetRow> rows, void (*change)(ModelConfig&)) {
  PresetGroup group{title, {}};
  for (const PresetRow& row : rows) group.models.push_back(MakePreset(row, defaults, change));
  return group;
}

PresetGroup MakePresets(const char* title, const ModelConfig& defaults,
                        std::span<const MoePresetRow> rows, void (*change)(ModelConfig&)) {
  PresetGroup group{title, {}};
  for (const auto& [row, experts] : rows) {
    ModelConfig with_experts = defaults;
    with_experts.moe.num_experts = experts.count;
    with_experts.moe.router_topk = experts.chosen;
    with_experts.moe.ffn_hidden_size = experts.ffn;
    with_experts.moe.aux_loss_coeff = experts.aux_loss;
    group.models.push_back(MakePreset(row, with_experts, change));
  }
  return group;
}

void ScaleEmbeddingByHiddenSize(ModelConfig& model) {
  model.embedding_scale = std::sqrt(static_cast<double>(model.hidden_size));
}

void Simplify(ModelConfig& model) {
  if (model.head_dim * model.num_heads == model.hidden_size) model.head_dim = 0;
  if (model.embedding_dim == model.hidden_size) model.embedding_dim = 0;
  if (model.attention_scale == 1.0 / std::sqrt(static_cast<double>(model.head_size()))) {
    model.attention_scale = 0;
  }
  const bool unscaled = model.rope_scaling.kind == RopeScalingKind::kNone;
  if (model.sliding_window == 0 || (unscaled && model.window_rope_theta == model.rope_theta)) {
    model.window_rope_theta = 0;
  }
  if (model.qkv_bias == model.bias) model.qkv_bias.reset();
  if (model.mlp_bias == model.bias) model.mlp_bias.reset();
}

}  // namespace trimtab
