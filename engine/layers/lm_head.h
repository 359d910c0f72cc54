// The end of the model: final norm if it has one, output projection, vocabulary-parallel
// cross-entropy.
#pragma once

#include "engine/layers/embedding.h"
#include "engine/layers/linear/linear.h"
#include "engine/layers/norm.h"

namespace trimtab {

/// What LmHead keeps between Forward and Backward, beside its input.
struct LmHeadSaved {
  NormSaved norm;
  Tensor wide;               // [rows, C]: before the projection to a narrower table
  LinearSaved output_layer;  // its input is the normalised stream [rows, embedding size]
  Tensor targets;            // [N] int32
  Tensor gradient_scale;     // [1]
  Tensor dlogits;  // [N, padded V / tp]: the logits, replaced by their gradient; undefined where
                   // they are recomputed
};

class LmHead {
 public:
  /// Declares a unit with a table of its own, unless the model ties it to the embedding's.
  /// `embedding` is that of this rank; nullptr when another pipeline stage has it: then a tied
  /// table is a duplicate, in a unit of its own.
  LmHead(ParameterStore& store, const LayerContext& context, const HeadSpec& spec,
         const Embedding* embedding);

  /// Adds the sum over the N tokens of the cross-entropy against targets [N] (int32), from the
  /// residual stream x [rows, C], to loss_sum [1]. Gradients are those of `gradient_scale` [1]
  /// times that sum. `logits`, if not null, receives a copy of this rank's logits [N, padded V /
  /// tp] (for tests).
  void Forward(const LayerContext& context, const Tensor& x, const Tensor& targets,
               const Tensor& gradient_scale, Tensor& loss_sum, LmHeadSaved& saved,
               Tensor* logits = nullptr) const;
  /// This rank's logits [rows, padded V / tp], an activation, for serving.
  Tensor Logits(const LayerContext& context, const Tensor& x) const;
  /// The residual stream x [rows, C] after the final norm, an activation; x itself without one.
  Tensor States(const LayerContext& context, const Tensor& x) const;
  /// Gradient of x [rows, C], in a new workspace tensor.
  Tensor Backward(const LayerContext& context, const Tensor& x, LmHeadSaved& saved,
                  bool accumulate) const;

  /// [padded V / tp, embedding size]
  Parameter& output_table() const { return output_layer_.weight(); }

 private:
  /// `tied`: the table of the embedding; nullptr if the head has its own.
  LmHead(ParameterStore& store, const LayerContext& context, const HeadSpec& spec, Parameter* tied);
  /// The normalised stream as the output projection takes it [rows, embedding size].
  LinearOperand Normed(const LayerContext& context, const Tensor& x, LmHeadSaved& saved) const;
  /// The logits from it.
  Tensor Logits(const LayerContext& context, LinearOperand normed, LinearSaved& saved) const;
  /// The cross-entropy of each token [N] and saved.dlogits, from Normed's result.
  Tensor Losses(const LayerContext& context, LinearOperand normed, LmHeadSaved& saved,
                Tensor* logits) const;

  HeadSpec spec_;
  std::optional<Norm> final_norm_;
  std::optional<ReplicatedLinear> projection_;  // to a table that is not as wide as the model
  ColumnParallelLinear output_layer_;
  Parameter* bias_ = nullptr;
  int64_t vocab_start_ = 0;
};

}  // namespace trimtab
