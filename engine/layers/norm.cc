#include "engine/layers/norm.h"

#include "engine/ops/norm.h"

namespace trimtab {

Norm::Norm(ParameterStore& store, const LayerContext& context, const std::string& name) {
  const int64_t hidden = context.model.hidden_size;
  weight_ = &store.Declare({.name = name + ".weight",
                            .rows = hidden,
                            .is_matrix = false,
                            .tensor_parallel = false,
                            .init = InitKind::kOnes,
                            .partition = WholePartition(hidden, 1)});
  if (context.model.norm == NormKind::kRmsNorm) return;
  bias_ = &store.Declare({.name = name + ".bias",
                          .rows = hidden,
                          .is_matrix = false,
                          .tensor_parallel = false,
                          .partition = WholePartition(hidden, 1)});
}

Tensor Norm::Forward(const LayerContext& context, const Tensor& x, NormSaved& saved) const {
  const double epsilon = context.model.norm_epsilon;
  Tensor y = context.New(x.shape(), MemoryTag::kActivations);
  saved.rstd = context.NewF32({x.dim(0)}, MemoryTag::kActivations);
  if (bias_ == nullptr) {
    RmsNormForward(x, weight_->weight, epsilon, y, saved.rstd);
  } else {
    saved.mean = context.NewF32({x.dim(0)}, MemoryTag::kActivations);
    LayerNormForward(x, weight_->weight, bias_->weight, epsilon, y, saved.mean, saved.rstd);
  }
  return y;
}

void Norm::Backward(const LayerContext&, const Tensor& x, const NormSaved& saved, const Tensor& dy,
                    Tensor& dx, bool accumulate) const {
  if (bias_ == nullptr) {
    RmsNormBackward(dy, x, weight_->weight, saved.rstd, dx, weight_->gradient, accumulate);
  } else {
    LayerNormBackward(dy, x, weight_->weight, saved.mean, saved.rstd, dx, weight_->gradient,
                      bias_->gradient, accumulate);
  }
}

}  // namespace trimtab
