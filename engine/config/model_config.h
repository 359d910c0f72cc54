// The shape of a language model: GPT-2 family and Llama family.
//
// Letters fixed across the project: B batch, T sequence, C hidden, H heads, D head size, F ffn,
// V vocab, L layers, N = B*T tokens.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "engine/config/moe_config.h"

namespace trimtab {

enum class NormKind { kLayerNorm, kRmsNorm };
enum class ActivationKind { kGelu, kSwiGlu };  // kGelu is the tanh approximation of GPT-2
enum class PositionKind { kLearned, kRope };

/// What is not the same in every layer of a model.
struct LayerKind {
  bool moe = false;  // experts in the place of the MLP

  bool operator==(const LayerKind&) const = default;
};

struct ModelConfig {
  std::string name{};
  int64_t vocab_size = 0;           // V: ids the tokenizer can produce
  int64_t hidden_size = 0;          // C
  int64_t num_layers = 0;           // L
  int64_t num_heads = 0;            // H
  int64_t num_kv_heads = 0;         // key/value heads; == num_heads without grouped-query attention
  int64_t ffn_hidden_size = 0;      // F
  int64_t max_sequence_length = 0;  // rows of the learned position table, which bound T
  NormKind norm = NormKind::kLayerNorm;
  ActivationKind activation = ActivationKind::kGelu;
  PositionKind position = PositionKind::kLearned;
  double norm_epsilon = 1e-5;
  double rope_theta = 10000.0;
  bool bias = true;             // biases of the linear layers
  bool tied_embeddings = true;  // the output projection shares the token embedding
  double init_std = 0.02;
  int64_t make_vocab_size_divisible_by = 128;  // per tensor-parallel rank, as Megatron-Core

  MoeConfig moe{};
  std::vector<LayerKind> layer_kinds{};  // by layer, where no pattern holds: a part of a model

  LayerKind layer_kind(int64_t layer) const;
  int64_t head_size() const { return hidden_size / num_heads; }  // D
  /// Columns of the fused query/key/value projection: (H + 2 * kv heads) * D.
  int64_t qkv_size() const { return (num_heads + 2 * num_kv_heads) * head_size(); }
  /// Width of the first projection of an MLP of width `ffn`: that, or twice that with SwiGLU (gate
  /// and up side by side).
  int64_t fc1_size(int64_t ffn) const {
    return activation == ActivationKind::kSwiGlu ? 2 * ffn : ffn;
  }
  int64_t fc1_size() const { return fc1_size(ffn_hidden_size); }
  /// V rounded up to make_vocab_size_divisible_by * tp; the added ids never enter the loss.
  int64_t padded_vocab_size(int64_t tp) const;
  /// Elements of a checkpoint, with the unpadded vocabulary.
  int64_t parameter_count() const;
  /// Of these, what one token is multiplied by or looks up: k of the E experts.
  int64_t active_parameter_count() const;
  /// Elements of the matrices that a token is multiplied by in the MLPs and experts of all layers.
  int64_t active_mlp_weights() const;

  bool operator==(const ModelConfig&) const = default;
};

/// Names of the built-in models, in the order `trimtab models` lists them.
std::vector<std::string> ModelPresetNames();

/// A preset by name, or a file: our own model JSON or a Hugging Face config.json.
/// Throws UsageError (unknown preset, with the nearest name) or InputError (file, JSON path).
ModelConfig LoadModelConfig(const std::string& preset_or_path);

/// Our own JSON form. `where` prefixes error messages ("run.json: $.model"). Strict.
ModelConfig ModelConfigFromJson(const nlohmann::json& json, const std::string& where);
nlohmann::json ToJson(const ModelConfig& model);

}  // namespace trimtab
