// The end of the model: final norm, output projection, vocabulary-parallel cross-entropy.
#pragma once

#include "engine/layers/embedding.h"
#include "engine/layers/linear.h"
#include "engine/layers/norm.h"

namespace trimtab {

/// What LmHead keeps between Forward and Backward, beside its input.
struct LmHeadSaved {
  NormSaved norm;
  Tensor hidden;   // [rows, C], normalised
  Tensor dlogits;  // [N, padded V / tp]: the logits, replaced by their gradient
};

class LmHead {
 public:
  /// Shares the embedding's token table when the model ties them, else declares its own.
  LmHead(ParameterStore& store, const LayerContext& context, const Embedding& embedding);

  /// Sum over the N tokens of the cross-entropy against targets [N] (int32), from the residual
  /// stream x [rows, C]. Gradients are those of `gradient_scale` times that sum. `logits`, if not
  /// null, receives a copy of this rank's logits [N, padded V / tp] (for tests).
  double Forward(const LayerContext& context, const Tensor& x, const Tensor& targets,
                 float gradient_scale, LmHeadSaved& saved, Tensor* logits = nullptr) const;
  /// Gradient of x [rows, C], in a new workspace tensor.
  Tensor Backward(const LayerContext& context, const Tensor& x, const LmHeadSaved& saved,
                  bool accumulate) const;

 private:
  Norm final_norm_;
  ColumnParallelLinear output_layer_;
  int64_t vocab_start_ = 0;
};

}  // namespace trimtab
