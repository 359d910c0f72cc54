// Vocabulary-parallel token embedding, scaled, brought to the hidden size where its table is
// narrower, with learned positions and a norm if the model has them.
#pragma once

#include <optional>

#include "engine/config/model/layer_spec.h"
#include "engine/layers/layer_context.h"
#include "engine/layers/linear/replicated_linear.h"
#include "engine/layers/norm.h"
#include "engine/parameters/parameter.h"

namespace trimtab {

/// What Embedding keeps between Forward and Backward, beside the tokens; nothing without a norm and
/// a projection.
struct EmbeddingSaved {
  Tensor narrow;  // [rows, embedding size]: before the projection
  Tensor sum;     // [rows, C]: before the norm
  NormSaved norm;
};

class Embedding {
 public:
  /// Declares the token table in a unit of its own, since a head may share it, and a unit of the
  /// rest.
  Embedding(ParameterStore& store, const LayerContext& context, const EmbeddingSpec& spec);

  /// x [rows, C], an activation, from tokens [N] (int32).
  Tensor Forward(const LayerContext& context, const Tensor& tokens, EmbeddingSaved& saved) const;
  /// Adds to the gradients of the tables. When not `accumulate` they are cleared first, except for
  /// the token table if `token_gradient_written`: tied output projections have written it already.
  void Backward(const LayerContext& context, const Tensor& tokens, const EmbeddingSaved& saved,
                Tensor dx, bool accumulate, bool token_gradient_written) const;
  /// Whether Backward reads weights.
  bool reads_weights_backward() const { return norm_.has_value() || projection_.has_value(); }

  /// [padded V / tp, embedding size]
  Parameter& token_table() const { return *tokens_; }
  /// First id of this rank's shard.
  int64_t vocab_start() const { return vocab_start_; }

 private:
  EmbeddingSpec spec_;
  Parameter* tokens_ = nullptr;
  Parameter* positions_ = nullptr;
  std::optional<ReplicatedLinear> projection_;  // of a table that is not as wide as the model
  std::optional<Norm> norm_;
  int64_t vocab_start_ = 0;
};

/// The name of the token table.
inline constexpr char kTokenTable[] = "embedding.word_embeddings.weight";

/// Declares a [padded V / tp, embedding size] table, used for the token embedding (whose rows are
/// looked up) and for an output projection that does not share its table on this rank. Padding rows
/// are zero.
enum class VocabTable { kEmbedding, kOutput, kOutputDuplicate };
Parameter& DeclareVocabTable(ParameterStore& store, const LayerContext& context,
                             const ModuleName& name, const VocabSpec& spec, VocabTable use);

}  // namespace trimtab
