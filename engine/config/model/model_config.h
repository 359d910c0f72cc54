// The shape of a language model: what the families of GPT models differ in, as data.
//
// Letters fixed across the project: B batch, T sequence, C hidden, H heads, D head size, F ffn,
// V vocab, L layers, N = B*T tokens.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "engine/config/model/latent_config.h"
#include "engine/config/model/layer_spec.h"
#include "engine/config/model/moe_config.h"
#include "engine/config/model/rope_scaling.h"

namespace trimtab {

enum class PositionKind { kLearned, kRope, kAlibi, kNone };

struct ModelConfig {
  std::string name{};
  int64_t vocab_size = 0;           // V: ids the tokenizer can produce
  int64_t hidden_size = 0;          // C
  int64_t num_layers = 0;           // L
  int64_t num_heads = 0;            // H
  int64_t num_kv_heads = 0;         // key/value heads; == num_heads without grouped-query attention
  int64_t ffn_hidden_size = 0;      // F
  int64_t max_sequence_length = 0;  // positions of the learned table, which bound T
  NormKind norm = NormKind::kLayerNorm;
  ActivationKind activation = ActivationKind::kGelu;
  PositionKind position = PositionKind::kLearned;
  double norm_epsilon = 1e-5;
  double rope_theta = 10000.0;
  bool bias = true;             // biases of the linear layers, where the next two do not say
  bool tied_embeddings = true;  // the output projection shares the token embedding
  double init_std = 0.02;
  int64_t make_vocab_size_divisible_by = 128;  // per tensor-parallel rank, as Megatron-Core

  BlockKind block = BlockKind::kSequential;
  int64_t head_dim = 0;               // D where it is not C / H; 0 = C / H
  std::optional<bool> qkv_bias{};     // of the query/key/value projection
  std::optional<bool> mlp_bias{};     // of both MLP projections
  bool norm_bias = true;              // of LayerNorm
  bool norm_weight_plus_one = false;  // norms multiply by 1 + weight, which begins at 0
  bool embedding_norm = false;        // a norm between embedding and first layer: BLOOM
  double embedding_scale = 1.0;       // multiplies the token embedding: Gemma's sqrt(C)
  // Width of the tables of tokens and outputs where it is not C, with a projection from and to it:
  // OPT 350M. 0 = C.
  int64_t embedding_dim = 0;
  bool final_norm = true;             // between the last layer and the output projection
  bool output_bias = false;           // of the output projection: GPT-J
  double logit_scale = 1.0;           // multiplies the logits: Grok
  double logit_soft_cap = 0;          // logits become cap * tanh(logits / cap); 0 = none
  double attention_soft_cap = 0;      // likewise the scaled scores
  double attention_scale = 0;         // multiplies the scores; 0 = 1 / sqrt(D)
  bool query_key_norm = false;        // an RMSNorm over D of every query and key head
  bool query_key_norm_whole = false;  // then over all query heads, and over all key heads: OLMo 2
  double qkv_clip = 0;                // queries, keys, values are clamped to +-this; 0 = not
  bool attention_sinks = false;       // a learned logit per head beside the scores: GPT-OSS
  int64_t position_offset = 0;        // row of the learned table for position 0: OPT's 2
  double rotary_fraction = 1.0;       // of D that rotary positions turn, the first dims
  bool rotary_interleaved = false;    // pairs are dims 2i, 2i + 1, not i, i + half
  RopeScaling rope_scaling{};
  // rope_theta of the layers that have a sliding window, which then are not scaled; 0 = as the
  // others: Gemma 3, OLMo 3.
  double window_rope_theta = 0;
  int64_t sliding_window = 0;         // as in AttentionSpec; 0 = no layer has one
  int64_t full_attention_period = 0;  // of so many layers the last has no window; 0 = all have it
  LatentConfig latent{};
  MoeConfig moe{};
  // Layers that a published checkpoint has beside these, each of which predicts one token further
  // (multi-token prediction, arXiv:2404.19737): counted, neither trained nor loaded.
  int64_t mtp_modules = 0;

  /// Of queries and keys: D.
  int64_t head_size() const {
    if (latent.used()) return latent.qk_nope_head_dim + latent.qk_rope_head_dim;
    return head_dim > 0 ? head_dim : hidden_size / num_heads;
  }
  /// Width of the tables of tokens and outputs.
  int64_t embedding_size() const { return embedding_dim > 0 ? embedding_dim : hidden_size; }
  bool narrow_embedding() const { return embedding_size() != hidden_size; }
  /// Of values: Dv.
  int64_t value_size() const { return latent.used() ? latent.v_head_dim : head_size(); }
  /// Columns of the attention's result: H * Dv.
  int64_t attention_size() const { return num_heads * value_size(); }
  /// Columns of queries, keys and values: H * D + kv heads * (D + Dv).
  int64_t qkv_size() const {
    return num_heads * head_size() + num_kv_heads * (head_size() + value_size());
  }
  /// Key/value heads on each of `tp` tensor-parallel ranks, and ranks that hold the same ones: with
  /// fewer heads than ranks, neighbours share one.
  int64_t kv_heads_of_rank(int64_t tp) const { return num_kv_heads > tp ? num_kv_heads / tp : 1; }
  int64_t kv_copies(int64_t tp) const {
    return num_kv_heads > 0 && tp % num_kv_heads == 0 ? tp / num_kv_heads : 1;
  }
  /// Elements of the matrices that attention multiplies a token by in one layer.
  int64_t attention_weights() const;
  /// Whether the activation multiplies two projections.
  bool gated() const;
  /// Width of the first projection of an MLP of width `ffn`: that, or twice that if gated (gate and
  /// up side by side).
  int64_t fc1_size(int64_t ffn) const { return gated() ? 2 * ffn : ffn; }
  int64_t fc1_size() const { return fc1_size(ffn_hidden_size); }
  bool has_qkv_bias() const { return qkv_bias.value_or(bias); }
  bool has_mlp_bias() const { return mlp_bias.value_or(bias); }
  bool has_norm_bias() const { return norm == NormKind::kLayerNorm && norm_bias; }
  /// Dims of a head that rotary positions turn: D * rotary_fraction, rounded down; of latent
  /// attention those that do.
  int64_t rotary_size() const;
  /// Rows of the learned position table.
  int64_t position_rows() const { return max_sequence_length + position_offset; }
  /// The sliding window of a layer; 0 = it sees all.
  int64_t window(int64_t layer) const {
    const bool full = full_attention_period > 0 && (layer + 1) % full_attention_period == 0;
    return full ? 0 : sliding_window;
  }
  NormSpec norm_spec() const;
  /// What layer number `layer` computes.
  LayerSpec layer(int64_t layer) const;
  EmbeddingSpec embedding() const;
  HeadSpec head() const;
  /// Whether a layer has an MLP of ffn_hidden_size, not experts.
  bool has_dense_layers() const;
  /// V rounded up to make_vocab_size_divisible_by * tp; the added ids never enter the loss.
  int64_t padded_vocab_size(int64_t tp) const;
  /// Elements of a checkpoint, with the unpadded vocabulary.
  int64_t parameter_count() const;
  /// Of one multi-token-prediction module, without the token table and output that it shares.
  int64_t mtp_parameter_count() const;
  /// Counts what one token is multiplied by or looks up of parameter_count(): k of the E experts.
  int64_t active_parameter_count() const;
  /// Elements of the matrices that a token is multiplied by before and after all layers.
  int64_t end_weights() const;
  /// Elements of the matrices that a token is multiplied by in the MLPs and experts of all layers.
  int64_t active_mlp_weights() const;

  bool operator==(const ModelConfig&) const = default;
};

/// Our own JSON form. `where` prefixes error messages ("run.json: $.model"). Strict.
ModelConfig ModelConfigFromJson(const nlohmann::json& json, const std::string& where);
/// Fields that many models leave at their defaults are written only where they differ from them.
nlohmann::json ToJson(const ModelConfig& model);

}  // namespace trimtab
