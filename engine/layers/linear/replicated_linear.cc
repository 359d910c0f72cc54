#include "engine/layers/linear/replicated_linear.h"

#include "engine/ops/elementwise/elementwise.h"
#include "engine/ops/gemm/gemm.h"

namespace trimtab {
namespace {

/// `tensor` in `dtype`.
Tensor As(const LayerContext& context, const Tensor& tensor, DType dtype) {
  if (tensor.dtype() == dtype) return tensor;
  Tensor converted = Tensor::Empty(context.device, tensor.shape(), dtype, MemoryTag::kWorkspace);
  Copy(tensor, converted);
  return converted;
}

}  // namespace

ReplicatedLinear::ReplicatedLinear(ParameterStore& store, const ModuleName& weight_name,
                                   const ModuleName& bias_name, int64_t in, int64_t out,
                                   double init_std)
    : weight_(&store.Declare({.name = weight_name,
                              .rows = out,
                              .columns = in,
                              .tensor_parallel = false,
                              .multiplied = 1,
                              .init = InitKind::kNormal,
                              .init_std = init_std,
                              .partition = WholePartition(out, in)})) {
  if (bias_name.empty()) return;
  bias_ = &store.Declare({.name = bias_name,
                          .rows = out,
                          .is_matrix = false,
                          .tensor_parallel = false,
                          .partition = WholePartition(out, 1)});
}

Tensor ReplicatedLinear::Forward(const LayerContext& context, const Tensor& x, MemoryTag tag,
                                 DType type) const {
  Tensor y = Tensor::Empty(context.device, {x.dim(0), weight_->spec.rows}, type, tag);
  const Tensor bias = bias_ != nullptr ? As(context, bias_->weight, type) : Tensor();
  if (weight_->packed.defined()) {
    PackedGemm(x, weight_->packed, bias, y);
  } else {
    Gemm(x, Transpose::kNo, weight_->weight, Transpose::kYes, y, {.bias = bias});
  }
  return y;
}

void ReplicatedLinear::Backward(const LayerContext& context, const Tensor& x, const Tensor& dy,
                                Tensor& dx, bool accumulate) const {
  if (bias_ != nullptr && bias_->spec.trainable) BiasBackward(dy, bias_->gradient, accumulate);
  const Tensor operand = As(context, dy, context.types.activations);
  Gemm(operand, Transpose::kNo, weight_->weight, Transpose::kNo, dx, {.accumulate = true});
  if (!weight_->spec.trainable) return;
  const auto weight_gradient = [weight = weight_, operand, x](const LayerContext&, bool add) {
    Gemm(operand, Transpose::kYes, x, Transpose::kNo, weight->gradient, {.accumulate = add});
  };
  if (context.deferred == nullptr) return weight_gradient(context, accumulate);
  context.deferred->push_back(weight_gradient);
}

}  // namespace trimtab
