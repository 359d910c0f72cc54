#include "engine/layers/norm.h"

#include <utility>

#include "engine/ops/fused_fp8.h"
#include "engine/ops/norm.h"

namespace trimtab {

Norm::Norm(ParameterStore& store, const LayerContext& context, const ModuleName& name) {
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

LinearOperand Norm::Forward(const LayerContext& context, const Tensor& x, NormSaved& saved,
                            std::optional<Fp8Target> target) const {
  const double epsilon = context.model.norm_epsilon;
  saved.rstd = context.NewF32({x.dim(0)}, MemoryTag::kActivations);
  if (bias_ != nullptr) saved.mean = context.NewF32({x.dim(0)}, MemoryTag::kActivations);
  if (target) {
    context.fp8->Write(context.parallel, *target,
                       [&](const Tensor& scale, Fp8Output& out, bool /*rehearsal*/) {
                         if (bias_ == nullptr) {
                           RmsNormForwardFp8(x, weight_->weight, epsilon, scale, out, saved.rstd);
                         } else {
                           LayerNormForwardFp8(x, weight_->weight, bias_->weight, epsilon, scale,
                                               out, saved.mean, saved.rstd);
                         }
                       });
    return std::move(target->out);
  }
  Tensor y = context.New(x.shape(), MemoryTag::kActivations);
  if (bias_ == nullptr) {
    RmsNormForward(x, weight_->weight, epsilon, y, saved.rstd);
  } else {
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
