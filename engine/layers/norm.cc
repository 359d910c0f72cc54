#include "engine/layers/norm.h"

#include <utility>

#include "engine/ops/elementwise/elementwise.h"
#include "engine/ops/fp8/fused_fp8.h"

namespace trimtab {
namespace {

/// Where the op writes the gradient of `vector`: of a frozen one, which it makes with the other
/// gradients all the same, memory that nothing reads.
Tensor NormGradient(const LayerContext& context, const Parameter& vector, bool accumulate) {
  if (vector.spec.trainable) return vector.gradient;
  Tensor unread = Tensor::Empty(context.device, {vector.spec.rows}, context.types.gradients,
                                MemoryTag::kWorkspace);
  if (accumulate) Fill(unread, 0.0f);
  return unread;
}

}  // namespace

Norm::Norm(ParameterStore& store, const ModuleName& name, const NormSpec& spec, int64_t columns)
    : spec_(spec) {
  weight_ = &store.Declare({.name = name + ".weight",
                            .rows = columns,
                            .is_matrix = false,
                            .tensor_parallel = false,
                            .init = NormWeightInit(spec),
                            .partition = WholePartition(columns, 1)});
  if (!spec.bias) return;
  bias_ = &store.Declare({.name = name + ".bias",
                          .rows = columns,
                          .is_matrix = false,
                          .tensor_parallel = false,
                          .partition = WholePartition(columns, 1)});
}

LinearOperand Norm::Forward(const LayerContext& context, const Tensor& x, NormSaved& saved,
                            std::optional<Fp8Target> target) const {
  const NormOptions options = NormOptionsOf(spec_);
  const bool centered = spec_.kind == NormKind::kLayerNorm;
  const Tensor bias = bias_ != nullptr ? bias_->weight : Tensor();
  saved.rstd = context.NewF32({x.dim(0)}, MemoryTag::kActivations);
  if (centered) saved.mean = context.NewF32({x.dim(0)}, MemoryTag::kActivations);
  if (target) {
    context.fp8->Write(context.parallel, *target,
                       [&](const Tensor& scale, Fp8Output& out, bool /*rehearsal*/) {
                         if (centered) {
                           LayerNormForwardFp8(x, weight_->weight, bias, options, scale, out,
                                               saved.mean, saved.rstd);
                         } else {
                           RmsNormForwardFp8(x, weight_->weight, options, scale, out, saved.rstd);
                         }
                       });
    return std::move(target->out);
  }
  Tensor y = context.New(x.shape(), MemoryTag::kActivations);
  if (centered) {
    LayerNormForward(x, weight_->weight, bias, options, y, saved.mean, saved.rstd);
  } else {
    RmsNormForward(x, weight_->weight, options, y, saved.rstd);
  }
  return y;
}

LinearOperand Norm::Backward(const LayerContext& context, const Tensor& x, const NormSaved& saved,
                             const Tensor& dy, Tensor& dx, bool accumulate,
                             std::optional<Fp8Target> target) const {
  const bool plus_one = spec_.weight_plus_one;
  Tensor dweight = NormGradient(context, *weight_, accumulate);
  Tensor dbias = bias_ != nullptr ? NormGradient(context, *bias_, accumulate) : Tensor();
  const auto add = [&](const Fp8Beside& copies) {
    if (spec_.kind == NormKind::kLayerNorm) {
      LayerNormBackward(dy, x, weight_->weight, saved.mean, saved.rstd, dx, dweight, dbias,
                        accumulate, plus_one, copies);
    } else {
      RmsNormBackward(dy, x, weight_->weight, saved.rstd, dx, dweight, accumulate, plus_one,
                      copies);
    }
  };
  LinearOperand result = dx;
  if (!target) {
    add({});
    return result;
  }
  context.fp8->Write(context.parallel, *target,
                     [&](const Tensor& scale, const Fp8Output& out, bool rehearsal) {
                       TRIMTAB_ASSERT(!rehearsal, "a norm's gradient would be added twice");
                       add({.scale = scale, .out = out});
                     });
  result.fp8 = std::move(target->out);
  return result;
}

}  // namespace trimtab
