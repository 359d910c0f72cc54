// Vocabulary-parallel token embedding, with learned positions if the model has them.
#pragma once

#include "engine/layers/layer_context.h"
#include "engine/layers/parameter.h"

namespace trimtab {

class Embedding {
 public:
  /// Declares the token table in a unit of its own, since a head may share it, and a unit of the
  /// rest.
  Embedding(ParameterStore& store, const LayerContext& context);

  /// x [rows, C], an activation, from tokens [N] (int32).
  Tensor Forward(const LayerContext& context, const Tensor& tokens) const;
  /// Adds to the gradients of the tables. When not `accumulate` they are cleared first, except for
  /// the token table if `token_gradient_written`: tied output projections have written it already.
  void Backward(const LayerContext& context, const Tensor& tokens, const Tensor& dx,
                bool accumulate, bool token_gradient_written) const;

  /// [padded V / tp, C]
  Parameter& token_table() const { return *tokens_; }
  /// First id of this rank's shard.
  int64_t vocab_start() const { return vocab_start_; }

 private:
  Parameter* tokens_ = nullptr;
  Parameter* positions_ = nullptr;
  int64_t vocab_start_ = 0;
};

/// The name of the token table.
inline constexpr char kTokenTable[] = "embedding.word_embeddings.weight";

/// Declares a [padded V / tp, C] table, used for the token embedding and for an output projection
/// that does not share its table on this rank. Padding rows are zero.
Parameter& DeclareVocabTable(ParameterStore& store, const LayerContext& context,
                             const ModuleName& name, bool duplicate = false);

}  // namespace trimtab
