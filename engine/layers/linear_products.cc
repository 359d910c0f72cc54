#include "engine/layers/linear_products.h"

#include <utility>

#include "engine/ops/gemm.h"

namespace trimtab {
namespace {

using Operand = Fp8State::Operand;

Tensor NewFp8(const LayerContext& context, const Shape& shape, DType dtype, MemoryTag tag) {
  return Tensor::Empty(context.device, shape, dtype, tag);
}

}  // namespace

LinearProducts::LinearProducts(const LayerContext& context, Parameter& weight, bool input_sharded)
    : weight_(&weight), input_sharded_(input_sharded) {
  if (context.fp8 != nullptr) fp8_layer_ = context.fp8->Declare(name(), weight);
}

std::string LinearName(const Parameter& weight) {
  const std::string name = weight.spec.name;
  return name.substr(0, name.rfind('.'));
}

void LinearProducts::Forward(const LayerContext& context, const Tensor& x, const Tensor& shard,
                             const Tensor& bias, Tensor& y, LinearSaved& saved) const {
  if (context.observer != nullptr) context.observer->OnForward(name(), x, weight_->weight);
  if (!fp8()) {
    saved.input = shard;
    return Multiply(context, x, bias, y);
  }
  const int64_t tokens = x.dim(0);
  const int64_t in = x.dim(1);
  const Tensor rows = NewFp8(context, {tokens, in}, DType::kF8E4M3, MemoryTag::kWorkspace);
  if (KeepsShard(context)) {
    saved.input = shard;
  } else {
    saved.input_transposed = NewFp8(context, {in, tokens}, DType::kF8E4M3, MemoryTag::kActivations);
  }
  context.fp8->Quantize(context.parallel, fp8_layer_, Operand::kInput, x, input_sharded_,
                        /*keep_scale=*/false, rows, saved.input_transposed);
  Fp8Product(context, rows, bias, y);
}

void LinearProducts::Multiply(const LayerContext& context, const Tensor& x, const Tensor& bias,
                              Tensor& y) const {
  TRIMTAB_ASSERT(!fp8(), "{} multiplies in fp8", name());
  if (weight_->packed.defined()) return PackedGemm(x, weight_->packed, bias, y);
  Gemm(x, Transpose::kNo, weight_->weight, Transpose::kYes, y,
       {.bias = bias, .tf32 = context.types.tf32});
}

void LinearProducts::MultiplyBack(const LayerContext& context, const Tensor& dy, Tensor& dx) const {
  TRIMTAB_ASSERT(!fp8(), "{} multiplies in fp8", name());
  Gemm(dy, Transpose::kNo, weight_->weight, Transpose::kNo, dx, {.tf32 = context.types.tf32});
}

std::optional<Fp8Target> LinearProducts::InputTarget(const LayerContext& context) const {
  if (!fp8() || KeepsShard(context) || context.observer != nullptr) return std::nullopt;
  return context.fp8->Target(fp8_layer_, Operand::kInput, input_sharded_, context.tokens(),
                             weight_->spec.columns, MemoryTag::kActivations);
}

std::optional<Fp8Target> LinearProducts::GradientTarget(const LayerContext& context) const {
  if (!fp8() || context.observer != nullptr) return std::nullopt;
  return context.fp8->Target(fp8_layer_, Operand::kGradient, !input_sharded_, context.tokens(),
                             weight_->spec.rows, MemoryTag::kWorkspace);
}

void LinearProducts::Forward(const LayerContext& context, const Fp8Output& x, const Tensor& bias,
                             Tensor& y, LinearSaved& saved) const {
  saved.input_transposed = x.transposed;
  Fp8Product(context, x.rows, bias, y);
}

void LinearProducts::Keep(const LayerContext& context, const LinearOperand& x,
                          LinearSaved& saved) const {
  if (x.fp8.transposed.defined()) {
    saved.input_transposed = x.fp8.transposed;
    return;
  }
  if (!fp8() || KeepsShard(context)) {
    saved.input = x.matrix;
    return;
  }
  saved.input_transposed =
      NewFp8(context, {x.matrix.dim(1), x.matrix.dim(0)}, DType::kF8E4M3, MemoryTag::kActivations);
  context.fp8->Quantize(context.parallel, fp8_layer_, Operand::kInput, x.matrix, input_sharded_,
                        /*keep_scale=*/true, {}, saved.input_transposed);
}

void LinearProducts::Fp8Product(const LayerContext& context, const Tensor& rows, const Tensor& bias,
                                Tensor& y) const {
  const Fp8Weight& weight = context.fp8->weight(fp8_layer_);
  Gemm(rows, Transpose::kNo, weight.rows, Transpose::kYes, y,
       {.bias = bias,
        .scale_a = context.fp8->inverse(fp8_layer_, Operand::kInput),
        .scale_b = weight.inverse,
        .fast_accumulation = true});
}

LinearProducts::Backward::Backward(const LinearProducts& products, const LayerContext& context,
                                   const Tensor& dy)
    : products_(&products) {
  if (context.observer != nullptr) context.observer->OnBackward(products.name(), dy);
  if (!products.fp8()) {
    dy_ = dy;
    return;
  }
  const int64_t tokens = dy.dim(0);
  const int64_t out = dy.dim(1);
  dy_fp8_ = NewFp8(context, {tokens, out}, DType::kF8E5M2, MemoryTag::kWorkspace);
  dy_fp8_transposed_ = NewFp8(context, {out, tokens}, DType::kF8E5M2, MemoryTag::kWorkspace);
  context.fp8->Quantize(context.parallel, products.fp8_layer_, Operand::kGradient, dy,
                        !products.input_sharded_, /*keep_scale=*/false, dy_fp8_,
                        dy_fp8_transposed_);
}

LinearProducts::Backward::Backward(const LinearProducts& products, Fp8Output dy)
    : products_(&products),
      dy_fp8_(std::move(dy.rows)),
      dy_fp8_transposed_(std::move(dy.transposed)) {}

void LinearProducts::Backward::WeightGradient(const LayerContext& context, const LinearSaved& saved,
                                              const Tensor& x, bool accumulate) const {
  Tensor& gradient = products_->weight_->gradient;
  if (!products_->fp8()) {
    Gemm(dy_, Transpose::kYes, x, Transpose::kNo, gradient,
         {.accumulate = accumulate, .tf32 = context.types.tf32});
    return;
  }
  Fp8State& fp8 = *context.fp8;
  const int layer = products_->fp8_layer_;
  Tensor input = saved.input_transposed;
  if (!input.defined()) {
    input = NewFp8(context, {x.dim(1), x.dim(0)}, DType::kF8E4M3, MemoryTag::kWorkspace);
    fp8.Quantize(context.parallel, layer, Operand::kInput, x, products_->input_sharded_,
                 /*keep_scale=*/true, {}, input);
  }
  Gemm(dy_fp8_transposed_, Transpose::kNo, input, Transpose::kYes, gradient,
       {.accumulate = accumulate,
        .scale_a = fp8.inverse(layer, Operand::kGradient),
        .scale_b = fp8.inverse(layer, Operand::kInput)});
}

LinearProducts::Backward LinearProducts::Backward::WeightPart() const {
  Backward part = *this;
  part.dy_fp8_ = {};
  return part;
}

void LinearProducts::Backward::InputGradient(const LayerContext& context, Tensor& dx) const {
  if (!products_->fp8()) return products_->MultiplyBack(context, dy_, dx);
  const Fp8Weight& fp8_weight = context.fp8->weight(products_->fp8_layer_);
  Gemm(dy_fp8_, Transpose::kNo, fp8_weight.transposed, Transpose::kYes, dx,
       {.scale_a = context.fp8->inverse(products_->fp8_layer_, Operand::kGradient),
        .scale_b = fp8_weight.inverse,
        .fast_accumulation = context.fp8->fast_gradients()});
}

}  // namespace trimtab
