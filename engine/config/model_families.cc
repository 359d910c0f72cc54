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
  model.ffn_hidden_size = 24576;
  return model;
}

ModelConfig OptFamily() {
  ModelConfig model;
  model.activation = ActivationKind::kRelu;
  model.position_offset = 2;
  model.ffn_hidden_size = 3072;
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
  model.ffn_hidden_size = 24576;
  model.max_sequence_length = 4096;
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
  model.num_kv_heads = 8;
  model.max_sequence_length = 131072;
  model.sliding_window = 4096;
  return model;
}

ModelConfig Qwen2Family() {
  ModelConfig model = LlamaFamily();
  model.num_kv_heads = 32;
  model.max_sequence_length = 32768;
  model.qkv_bias = true;
  return model;
}

ModelConfig Qwen3Family() {
  ModelConfig model = LlamaFamily();
  model.num_kv_heads = 32;
  model.max_sequence_length = 32768;
  model.query_key_norm = true;
  model.head_dim = 128;
  return model;
}

ModelConfig Gemma2Family() {
  ModelConfig model = LlamaFamily();
  model.num_kv_heads = 4;
  model.max_sequence_length = 8192;
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
  model.num_kv_heads = 2;
  model.max_sequence_length = 131072;
  model.norm_epsilon = 1.5625e-7;
  model.qkv_bias = true;
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

ModelConfig Glm130bFamily() {
  ModelConfig model;
  model.activation = ActivationKind::kGeGluErf;
  model.position = PositionKind::kRope;
  model.block = BlockKind::kDeepNorm;
  return model;
}

ModelConfig MixtralFamily() {
  ModelConfig model = LlamaFamily();
  model.num_kv_heads = 8;
  model.max_sequence_length = 131072;
  model.norm_epsilon = 1e-5;
  model.rope_theta = 1e6;
  model.moe.aux_loss_coeff = 0.001;
  return model;
}

ModelConfig Qwen3MoeFamily() {
  ModelConfig model = Qwen3Family();
  model.num_kv_heads = 4;
  model.head_dim = 0;  // its class has no such key, and takes C / H without one
  model.moe.pre_softmax = true;
  model.moe.aux_loss_coeff = 0.001;
  return model;
}

ModelConfig GrokFamily() {
  ModelConfig model = LlamaFamily();
  model.activation = ActivationKind::kGeGlu;
  model.tied_embeddings = true;
  model.block = BlockKind::kSandwich;
  model.attention_soft_cap = 30;
  model.moe.pre_softmax = true;
  return model;
}

ModelConfig Qwen2MoeFamily() {
  ModelConfig model = Qwen2Family();
  model.num_kv_heads = 16;
  model.moe.pre_softmax = true;
  model.moe.aux_loss_coeff = 0.001;
  model.moe.shared_expert_gate = true;
  return model;
}

ModelConfig DeepSeekV2Family() {
  ModelConfig model = LlamaFamily();
  model.rotary_interleaved = true;
  model.moe.pre_softmax = true;
  model.moe.aux_loss_coeff = 0.001;
  return model;
}

ModelConfig DeepSeekV3Family() {
  ModelConfig model = LlamaFamily();
  // Key/value heads stay those of the heads, though its class says 128: latent attention has no
  // others.
  model.max_sequence_length = 4096;
  model.rotary_interleaved = true;
  model.moe.score = RouterScore::kSigmoid;
  model.moe.norm_topk = true;
  model.moe.group_score = GroupScore::kSumOfTopTwo;
  model.moe.expert_bias = true;
  model.moe.first_k_dense = 3;
  model.moe.num_groups = 8;
  model.moe.group_topk = 4;
  model.moe.topk_scaling_factor = 2.5;
  model.moe.aux_loss_coeff = 0.0001;  // the report's (arXiv:2412.19437); its class has no such key
  return model;
}

ModelConfig GptOssFamily() {
  ModelConfig model = LlamaFamily();
  model.num_kv_heads = 8;
  model.head_dim = 64;
  model.max_sequence_length = 131072;
  model.norm_epsilon = 1e-5;
  model.rope_theta = 150000.0;
  // The class did not say the length at first, and meant this one.
  model.rope_scaling = {
      .kind = RopeScalingKind::kYarn, .factor = 32, .original_length = 4096, .truncate = false};
  model.activation = ActivationKind::kClampedSwiGlu;
  model.bias = true;
  model.attention_sinks = true;
  model.sliding_window = 128;
  model.full_attention_period = 2;
  model.moe.router_bias = true;
  model.moe.aux_loss_coeff = 0.9;  // 0.001 from Transformers 5 on
  return model;
}

ModelConfig DbrxFamily() {
  ModelConfig model = LlamaFamily();
  model.num_kv_heads = 1;
  model.norm = NormKind::kLayerNorm;
  model.norm_bias = false;
  model.norm_epsilon = 1e-5;
  model.moe.aux_loss_coeff = 0.01;
  return model;
}

double LatentAttentionScale(const ModelConfig& model, double exponent) {
  const double m = 0.1 * exponent * std::log(model.rope_scaling.factor) + 1.0;
  return m * m / std::sqrt(static_cast<double>(model.head_size()));
}

void Simplify(ModelConfig& model) {
  if (model.head_dim * model.num_heads == model.hidden_size) model.head_dim = 0;
  if (model.embedding_dim == model.hidden_size) model.embedding_dim = 0;
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
