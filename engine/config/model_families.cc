#include "engine/config/model_families.h"

#include <cmath>

namespace trimtab {

ModelConfig Gpt2Family() { return {}; }

ModelConfig GptJFamily() {
  ModelConfig model;
  model.position = PositionKind::kRope;
  model.bias = false;
  model.mlp_bias = true;
  model.tied_embeddings = false;
  model.output_bias = true;
  model.block = BlockKind::kParallelShared;
  model.rotary_interleaved = true;
  return model;
}

ModelConfig GptNeoxFamily() {
  ModelConfig model;
  model.activation = ActivationKind::kGeluErf;
  model.position = PositionKind::kRope;
  model.tied_embeddings = false;
  model.block = BlockKind::kParallel;
  model.rotary_fraction = 0.25;
  return model;
}

ModelConfig OptFamily() {
  ModelConfig model;
  model.activation = ActivationKind::kRelu;
  model.position_offset = 2;
  return model;
}

ModelConfig BloomFamily() {
  ModelConfig model;
  model.position = PositionKind::kAlibi;
  model.embedding_norm = true;
  return model;
}

ModelConfig MptFamily() {
  ModelConfig model;
  model.activation = ActivationKind::kGeluErf;
  model.position = PositionKind::kAlibi;
  model.bias = false;
  model.norm_bias = false;
  return model;
}

ModelConfig FalconFamily() {
  ModelConfig model;
  model.activation = ActivationKind::kGeluErf;
  model.position = PositionKind::kRope;
  model.bias = false;
  model.block = BlockKind::kParallelShared;
  return model;
}

ModelConfig NemotronFamily() {
  ModelConfig model;
  model.activation = ActivationKind::kSquaredRelu;
  model.position = PositionKind::kRope;
  model.bias = false;
  model.tied_embeddings = false;
  model.norm_weight_plus_one = true;
  model.rotary_fraction = 0.5;
  return model;
}

ModelConfig LlamaFamily() {
  ModelConfig model;
  model.norm = NormKind::kRmsNorm;
  model.activation = ActivationKind::kSwiGlu;
  model.position = PositionKind::kRope;
  model.norm_epsilon = 1e-6;
  model.bias = false;
  model.tied_embeddings = false;
  return model;
}

ModelConfig MistralFamily() {
  ModelConfig model = LlamaFamily();
  model.sliding_window = 4096;
  return model;
}

ModelConfig Qwen2Family() {
  ModelConfig model = LlamaFamily();
  model.qkv_bias = true;
  return model;
}

ModelConfig Qwen3Family() {
  ModelConfig model = LlamaFamily();
  model.query_key_norm = true;
  model.head_dim = 128;
  return model;
}

ModelConfig Gemma2Family() {
  ModelConfig model = LlamaFamily();
  model.activation = ActivationKind::kGeGlu;
  model.tied_embeddings = true;
  model.block = BlockKind::kSandwich;
  model.head_dim = 256;
  model.norm_weight_plus_one = true;
  model.logit_soft_cap = 30;
  model.attention_soft_cap = 50;
  model.attention_scale = 1.0 / 16.0;
  model.sliding_window = 4096;
  model.full_attention_period = 2;
  return model;
}

ModelConfig GlmFamily() {
  ModelConfig model = LlamaFamily();
  model.head_dim = 128;
  model.rotary_fraction = 0.5;
  model.rotary_interleaved = true;
  return model;
}

ModelConfig Glm4Family() {
  ModelConfig model = GlmFamily();
  model.block = BlockKind::kSandwich;
  return model;
}

void Simplify(ModelConfig& model) {
  if (model.head_dim * model.num_heads == model.hidden_size) model.head_dim = 0;
  if (model.attention_scale == 1.0 / std::sqrt(static_cast<double>(model.head_size()))) {
    model.attention_scale = 0;
  }
  if (model.qkv_bias == model.bias) model.qkv_bias.reset();
  if (model.mlp_bias == model.bias) model.mlp_bias.reset();
}

RopeScaling Llama3Scaling(double factor) {
  return {.kind = RopeScalingKind::kLlama3, .factor = factor, .original_length = 8192};
}

}  // namespace trimtab
