#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "export/megatron/options.h"

namespace trimtab {
namespace {

constexpr int64_t kLlama3Original = 8192;  // that Megatron-LM's rope scaling is written for

void AddPositions(const ModelConfig& model, MegatronOptions& options) {
  options.Require(model.position != PositionKind::kAlibi, "ALiBi positions");
  options.Require(model.position_offset == 0, "a learned position table with an offset");
  if (model.position == PositionKind::kLearned) {
    options.Add("--position-embedding-type", "learned_absolute");
  } else if (model.position == PositionKind::kNone) {
    options.Add("--position-embedding-type", "none");
  }
  if (model.position != PositionKind::kRope) return;
  options.Add("--position-embedding-type", "rope");
  options.Require(model.rope_theta == std::floor(model.rope_theta), "a rope_theta with a fraction");
  options.Add("--rotary-base", static_cast<int64_t>(model.rope_theta));
  if (model.rotary_fraction != 1) options.Add("--rotary-percent", model.rotary_fraction);
  if (model.rotary_interleaved) options.Add("--rotary-interleaved");
  const RopeScaling& scaling = model.rope_scaling;
  options.Require(scaling.kind != RopeScalingKind::kYarn, "yarn scaling of rotary positions");
  if (scaling.kind == RopeScalingKind::kLinear) {
    options.Require(scaling.factor == std::floor(scaling.factor),
                    "linear scaling of rotary positions by a fraction");
    options.Add("--rotary-seq-len-interpolation-factor", static_cast<int64_t>(scaling.factor));
  } else if (scaling.kind == RopeScalingKind::kLlama3) {
    options.Require(scaling.low_frequency == 1 && scaling.high_frequency == 4 &&
                        scaling.original_length == kLlama3Original,
                    "llama3 scaling other than of 8192 positions between frequencies 1 and 4");
    options.Add("--use-rope-scaling");
    options.Add("--rope-scaling-factor", scaling.factor);
  }
}

void AddNorm(const ModelConfig& model, MegatronOptions& options) {
  const bool layer_norm = model.norm == NormKind::kLayerNorm;
  options.Require(!layer_norm || model.norm_bias, "LayerNorm without a bias");
  options.Add("--normalization", layer_norm ? "LayerNorm" : "RMSNorm");
  options.Add("--norm-epsilon", model.norm_epsilon);
  if (model.norm_weight_plus_one) options.Add("--apply-layernorm-1p");
  if (model.query_key_norm || model.latent.used()) options.Add("--qk-layernorm");
}

void AddActivation(const ModelConfig& model, MegatronOptions& options) {
  switch (model.activation) {
    case ActivationKind::kGelu:  // fused with its bias, Megatron-LM's default takes the tanh form
      options.Require(model.has_mlp_bias(), "GELU's tanh form without biases");
      return;
    case ActivationKind::kGeluErf:
      return options.Add("--no-bias-gelu-fusion");
    case ActivationKind::kSwiGlu:
      return options.Add("--swiglu");
    case ActivationKind::kSquaredRelu:
      return options.Add("--squared-relu");
    default:
      options.Require(false, "this model's activation; it has gelu, swiglu and squared relu");
  }
}

void AddBiases(const ModelConfig& model, MegatronOptions& options) {
  options.Require(model.bias == model.has_mlp_bias(), "biases in attention or the MLP alone");
  if (model.bias) {
    options.Require(model.has_qkv_bias(), "biases everywhere but in query, key and value");
    return;
  }
  options.Add("--disable-bias-linear");
  if (model.has_qkv_bias()) options.Add("--add-qkv-bias");
}

void AddAttention(const ModelConfig& model, MegatronOptions& options) {
  options.Add("--num-attention-heads", model.num_heads);
  if (model.num_kv_heads != model.num_heads && !model.latent.used()) {
    options.Add("--group-query-attention");
    options.Add("--num-query-groups", model.num_kv_heads);
  }
  options.Require(model.attention_scale == 0, "a scale of the scores other than 1 / sqrt(D)");
  options.Require(model.attention_soft_cap == 0, "capped scores");
  options.Require(model.qkv_clip == 0, "clamped queries, keys and values");
  if (model.attention_sinks) options.Add("--softmax-type", "learnable");
  if (model.sliding_window > 0) {
    options.Add("--window-size", fmt::format("{},0", model.sliding_window - 1));
    if (model.full_attention_period > 0) {
      options.Add("--window-attn-skip-freq", model.full_attention_period);
    }
  }
  const LatentConfig& latent = model.latent;
  if (!latent.used()) return options.Add("--kv-channels", model.head_size());
  options.Add("--multi-latent-attention");
  options.Add("--rope-type", "rope");
  if (latent.q_lora_rank > 0) options.Add("--q-lora-rank", latent.q_lora_rank);
  options.Add("--kv-lora-rank", latent.kv_lora_rank);
  options.Add("--qk-head-dim", latent.qk_nope_head_dim);
  options.Add("--qk-pos-emb-head-dim", latent.qk_rope_head_dim);
  options.Add("--v-head-dim", latent.v_head_dim);
}

/// "[0]*3+[1]*58": which layers have experts, as a list that Python evaluates.
std::string ExpertLayers(const ModelConfig& model) {
  std::string text;
  for (int64_t begin = 0, end = 0; begin < model.num_layers; begin = end) {
    const bool experts = model.moe.is_moe_layer(begin);
    while (end < model.num_layers && model.moe.is_moe_layer(end) == experts) ++end;
    text += fmt::format("{}[{}]*{}", begin > 0 ? "+" : "", experts ? 1 : 0, end - begin);
  }
  return text;
}

void AddRouter(const MoeConfig& moe, MegatronOptions& options) {
  const bool sigmoid = moe.score == RouterScore::kSigmoid;
  options.Require(!moe.router_bias, "a learned bias of the router");
  options.Require(moe.logit_soft_cap == 0, "capped logits of the router");
  // Megatron-LM divides sigmoid scores by their sum, and softmax scores of all experts never.
  options.Require(moe.router == RouterKind::kSinkhorn || moe.router_topk == 1 ||
                      (sigmoid ? moe.norm_topk : !moe.pre_softmax || !moe.norm_topk),
                  "these weights of a token's experts, as norm_topk has them");
  options.Add("--moe-router-topk", moe.router_topk);
  options.Add("--moe-router-score-function", sigmoid ? "sigmoid" : "softmax");
  if (moe.pre_softmax) options.Add("--moe-router-pre-softmax");
  if (moe.topk_scaling_factor != 1) {
    options.Require(sigmoid || moe.pre_softmax, "topk_scaling_factor of a softmax of the chosen");
    options.Add("--moe-router-topk-scaling-factor", moe.topk_scaling_factor);
  }
  if (moe.num_groups > 1) {
    options.Require(moe.group_score == GroupScore::kSumOfTopTwo,
                    "groups of experts chosen by their highest score");
    options.Add("--moe-router-num-groups", moe.num_groups);
    options.Add("--moe-router-group-topk", moe.group_topk);
  }
  if (moe.expert_bias) {
    options.Add("--moe-router-enable-expert-bias");
    options.Add("--moe-router-bias-update-rate", moe.bias_update_rate);
  }
  if (moe.router == RouterKind::kSinkhorn) {
    options.Add("--moe-router-load-balancing-type", "sinkhorn");
  } else if (moe.aux_loss_coeff > 0) {  // ours looks at one sequence
    options.Add("--moe-router-load-balancing-type", "seq_aux_loss");
    options.Add("--moe-aux-loss-coeff", moe.aux_loss_coeff);
  } else {
    options.Add("--moe-router-load-balancing-type", "none");
  }
  if (moe.z_loss_coeff > 0) options.Add("--moe-z-loss-coeff", moe.z_loss_coeff);
}

}  // namespace

void AddMegatronModel(const RunConfig& run, MegatronOptions& options) {
  const ModelConfig& model = run.model;
  options.Require(model.block == BlockKind::kSequential, "this form of the block");
  options.Require(!model.query_key_norm_whole, "norms over all queries and over all keys");
  options.Require(model.window_rope_theta == 0, "rotary positions of layers with a window");
  options.Require(!model.embedding_norm, "a norm behind the embedding");
  options.Require(model.final_norm, "a model without a final norm");
  options.Require(!model.narrow_embedding(), "an embedding of another width than the layers");
  options.Require(model.embedding_scale == 1, "a scaled embedding");
  options.Require(!model.output_bias, "a bias of the output projection");
  options.Require(model.logit_scale == 1 && model.logit_soft_cap == 0, "scaled or capped logits");
  options.Add("--use-mcore-models");
  options.Add("--transformer-impl", "transformer_engine");
  options.Add("--num-layers", model.num_layers);
  options.Add("--hidden-size", model.hidden_size);
  options.Add("--ffn-hidden-size", model.ffn_hidden_size);
  AddAttention(model, options);
  options.Add("--seq-length", run.sequence_length);
  options.Add("--max-position-embeddings",
              std::max(model.max_sequence_length, run.sequence_length));
  options.Add("--vocab-size", model.vocab_size);
  options.Add("--make-vocab-size-divisible-by", model.make_vocab_size_divisible_by);
  AddPositions(model, options);
  AddNorm(model, options);
  AddActivation(model, options);
  AddBiases(model, options);
  if (!model.tied_embeddings) options.Add("--untie-embeddings-and-output-weights");
  options.Add("--init-method-std", model.init_std);
  options.Add("--attention-dropout", int64_t{0});
  options.Add("--hidden-dropout", int64_t{0});
}

void AddMegatronExperts(const RunConfig& run, MegatronOptions& options) {
  const MoeConfig& moe = run.model.moe;
  if (!moe.used()) return;
  options.Require(!moe.shared_expert_gate, "a gate of the shared experts");
  options.Add("--num-experts", moe.num_experts);
  options.Add("--moe-layer-freq", ExpertLayers(run.model));
  options.Add("--moe-ffn-hidden-size", moe.ffn_hidden_size);
  if (moe.shared_ffn_hidden_size > 0) {
    options.Add("--moe-shared-expert-intermediate-size", moe.shared_ffn_hidden_size);
  }
  options.Add("--moe-grouped-gemm");
  AddRouter(moe, options);
  if (moe.capacity_factor > 0) {
    const bool by_position = moe.drop_policy == DropPolicy::kPosition;
    options.Add("--moe-expert-capacity-factor", moe.capacity_factor);
    options.Add("--moe-token-drop-policy", by_position ? "position" : "probs");
    if (moe.pad_to_capacity) options.Add("--moe-pad-expert-input-to-capacity");
  }
  if (run.routing.force_balance) options.Add("--moe-router-force-load-balancing");
  options.Add("--expert-model-parallel-size", run.layout.ep);
  options.Add("--expert-tensor-parallel-size", run.layout.etp);
  options.Add("--moe-token-dispatcher-type", Name(run.layout.dispatch));
}

}  // namespace trimtab
