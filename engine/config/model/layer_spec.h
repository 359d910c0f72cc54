// What one layer of a model computes, and what comes before and after the layers: values that
// ModelConfig makes (model_config.h) and layers copy when they are made. Layers with equal
// specifications do the same work.
//
// Letters are those of model_config.h: C hidden, H heads, D head size, F ffn, V vocab, L layers.
#pragma once

#include <cstdint>
#include <optional>
#include <variant>

#include "engine/config/model/latent_config.h"
#include "engine/config/model/moe_config.h"
#include "engine/config/model/rope_scaling.h"

namespace trimtab {

enum class NormKind { kLayerNorm, kRmsNorm };
/// kGelu and kGeGlu take the tanh approximation of GELU, kGeluErf and kGeGluErf the function
/// itself; kSquaredRelu is max(x, 0)^2. Those ending in Glu multiply it by a second projection.
/// kClampedSwiGlu: x sigmoid(1.702 x) of an x of at most 7, times 1 + the second kept within 7
/// (GPT-OSS).
enum class ActivationKind {
  kGelu,
  kSwiGlu,
  kGeluErf,
  kRelu,
  kSquaredRelu,
  kGeGlu,
  kGeGluErf,
  kClampedSwiGlu,
};

/// How a layer adds attention and MLP to the residual stream x; n, m are norms.
enum class BlockKind {
  kSequential,      // x += attention(n(x)); x += mlp(m(x))
  kParallel,        // x += attention(n(x)) + mlp(m(x)): GPT-NeoX, Falcon 40B
  kParallelShared,  // x += attention(n(x)) + mlp(n(x)): GPT-J, Falcon 7B
  kSandwich,        // x += n'(attention(n(x))); x += m'(mlp(m(x))): Gemma 2
  // x = n(x), x = a x + attention(x); x = m(x), x = a x + mlp(x), a = sqrt(2 L): GLM-130B's form of
  // DeepNorm (arXiv:2203.00555)
  kDeepNorm,
  kPostNorm,       // x = n(x + attention(x)); x = m(x + mlp(x)): the first Transformer's, OPT 350M
  kReorderedNorm,  // x += n(attention(x)); x += m(mlp(x)): OLMo 2 (arXiv:2501.00656, section 3.1)
};

/// Which RMSNorms queries and keys go through before they are rotated.
enum class QueryKeyNorm : uint8_t {
  kNone,
  kHeads,  // one over the D elements of each head: Qwen3, Gemma 3
  kWhole,  // one over the elements of all query heads, one over those of all key heads: OLMo 2
};

struct NormSpec {
  NormKind kind = NormKind::kLayerNorm;
  double epsilon = 1e-5;
  bool bias = true;              // of LayerNorm
  bool weight_plus_one = false;  // multiplies by 1 + weight, which begins at 0

  bool operator==(const NormSpec&) const = default;
};

/// Causal self-attention of H query heads and KV key/value heads.
struct AttentionSpec {
  int64_t hidden_size = 0;  // C
  int64_t heads = 0;        // H
  int64_t kv_heads = 0;     // KV
  int64_t head_size = 0;    // of queries and keys: D
  int64_t value_size = 0;   // of values: Dv
  double scale = 0;         // multiplies the scores; 0 = 1 / sqrt(D)
  double soft_cap = 0;      // scaled scores become cap * tanh(scores / cap); 0 = none
  int64_t window = 0;       // keys that a query sees, itself included; 0 = all before it
  bool alibi = false;       // scores fall with the distance of the key
  bool sinks = false;       // a learned logit per head beside the scores
  double qkv_clip = 0;      // queries, keys, values are clamped to +-this; 0 = not
  std::optional<Rotary> rotary{};
  QueryKeyNorm query_key_norm = QueryKeyNorm::kNone;
  NormSpec norm{};  // epsilon and form of norms within attention
  bool qkv_bias = false;
  bool output_bias = false;
  double init_std = 0;         // of the initial weights
  double output_init_std = 0;  // and of those that lead back into the residual stream

  /// Columns of the result: H * Dv.
  int64_t out_size() const { return heads * value_size; }
  /// Columns of queries, keys and values: H * D + KV * (D + Dv).
  int64_t qkv_size() const { return heads * head_size + kv_heads * (head_size + value_size); }
  /// Key/value heads on each of `tp` tensor-parallel ranks, and the number of ranks that hold the
  /// same ones: with fewer heads than ranks, neighbours share one.
  int64_t kv_heads_of_rank(int64_t tp) const { return kv_heads > tp ? kv_heads / tp : 1; }
  int64_t kv_copies(int64_t tp) const {
    return kv_heads > 0 && tp % kv_heads == 0 ? tp / kv_heads : 1;
  }
  bool operator==(const AttentionSpec&) const = default;
};

/// Multi-head latent attention: heads made of compressed vectors.
struct LatentSpec {
  AttentionSpec heads{};
  LatentConfig latent{};

  bool operator==(const LatentSpec&) const = default;
};

/// An MLP of width F.
struct MlpSpec {
  int64_t hidden_size = 0;      // C
  int64_t ffn_hidden_size = 0;  // F
  ActivationKind activation = ActivationKind::kGelu;
  bool bias = false;  // of both projections
  double init_std = 0;
  double output_init_std = 0;

  /// True if the activation multiplies two projections.
  bool gated() const { return IsGated(activation); }
  static bool IsGated(ActivationKind kind);
  bool operator==(const MlpSpec&) const = default;
};

/// Experts in the place of an MLP.
struct MoeSpec {
  MlpSpec expert{};  // each of them
  MlpSpec shared{};  // those that take every token, together; of width 0 = none
  MoeConfig moe{};

  bool operator==(const MoeSpec&) const = default;
};

/// How a layer's parts join the residual stream.
struct ResidualSpec {
  BlockKind kind = BlockKind::kSequential;
  NormSpec norm{};
  int64_t hidden_size = 0;    // C
  float stream_scale = 1.0f;  // kDeepNorm: a

  bool operator==(const ResidualSpec&) const = default;
};

/// One alternative for each kind of mixer and MLP that the engine has.
using MixerSpec = std::variant<AttentionSpec, LatentSpec>;
using FeedForwardSpec = std::variant<MlpSpec, MoeSpec>;

struct LayerSpec {
  MixerSpec mixer{};
  FeedForwardSpec mlp{};
  ResidualSpec residual{};

  /// The heads of the layer's attention, of whichever kind.
  const AttentionSpec& attention() const;
  bool has_experts() const { return std::holds_alternative<MoeSpec>(mlp); }
  bool operator==(const LayerSpec&) const = default;
};

/// A table with a row for every token id, cut by rows over tensor-parallel ranks.
struct VocabSpec {
  int64_t vocab_size = 0;    // V
  int64_t divisible_by = 1;  // rows are padded to a multiple of this times tp
  int64_t width = 0;
  double init_std = 0;

  /// V rounded up; the added ids never enter the loss.
  int64_t padded_rows(int64_t tp) const;
  bool operator==(const VocabSpec&) const = default;
};

/// What comes before the layers.
struct EmbeddingSpec {
  VocabSpec table{};
  bool tied = false;            // the output projection shares the table
  int64_t hidden_size = 0;      // C; projected to if the table is not as wide
  double scale = 1.0;           // multiplies the embedding
  int64_t positions = 0;        // that the learned table has a row for; 0 = no such table
  int64_t position_offset = 0;  // its row for position 0
  std::optional<NormSpec> norm{};

  bool narrow() const { return table.width != hidden_size; }
  bool operator==(const EmbeddingSpec&) const = default;
};

/// What comes after the layers.
struct HeadSpec {
  VocabSpec table{};
  bool tied = false;        // it is the embedding's
  int64_t hidden_size = 0;  // C; projected from if the table is not as wide
  std::optional<NormSpec> norm{};
  bool bias = false;
  double logit_scale = 1.0;
  double logit_soft_cap = 0;  // 0 = none

  bool narrow() const { return table.width != hidden_size; }
  bool operator==(const HeadSpec&) const = default;
};

}  // namespace trimtab
