#include "engine/layers/linear/linear_gemms.h"

#include <utility>

#include "engine/ops/elementwise/elementwise.h"
#include "engine/ops/gemm/gemm.h"

namespace trimtab {
namespace {

using Operand = Fp8State::Operand;

}  // namespace

LinearGemms::LinearGemms(const LayerContext& context, Parameter& weight, bool input_sharded)
    : weight_(&weight), input_sharded_(input_sharded) {
  if (context.fp8 != nullptr) fp8_layer_ = context.fp8->Declare(name(), weight);
}

std::string LinearName(const Parameter& weight) {
  const std::string name = weight.spec.name;
  return name.substr(0, name.rfind('.'));
}

void LinearGemms::Forward(const LayerContext& context, const Tensor& x, const Tensor& shard,
                          const LinearExtras& extras, Tensor& y, LinearSaved& saved) const {
  if (context.observer != nullptr) context.observer->OnForward(name(), x, weight_->weight);
  if (!fp8()) {
    saved.input = shard;
    return Multiply(context, x, extras, y);
  }
  const int64_t tokens = x.dim(0);
  const int64_t in = x.dim(1);
  const Tensor rows =
      Tensor::Empty(context.device, {tokens, in}, DType::kF8E4M3, MemoryTag::kWorkspace);
  if (KeepsShard(context)) {
    saved.input = shard;
  } else {
    saved.input_transposed =
        Tensor::Empty(context.device, {in, tokens}, DType::kF8E4M3, MemoryTag::kActivations);
  }
  context.fp8->Quantize(context.parallel, fp8_layer_, Operand::kInput, x, input_sharded_,
                        /*keep_scale=*/false, rows, saved.input_transposed);
  Fp8Product(context, rows, extras, y);
}

void LinearGemms::Multiply(const LayerContext& context, const Tensor& x, const LinearExtras& extras,
                           Tensor& y) const {
  TRIMTAB_ASSERT(!fp8(), "{} multiplies in fp8", name());
  if (weight_->packed.defined()) {
    TRIMTAB_ASSERT(!extras.gelu.defined(), "{} is packed, without gelu", name());
    PackedGemm(x, weight_->packed, extras.bias, y);
    if (extras.residual.defined()) Add(extras.residual, y);
    return;
  }
  Gemm(x, Transpose::kNo, weight_->weight, Transpose::kYes, y,
       {.bias = extras.bias,
        .addend = extras.residual,
        .gelu = extras.gelu,
        .tf32 = context.types.tf32});
}

void LinearGemms::MultiplyBack(const LayerContext& context, const Tensor& dy, Tensor& dx,
                               const Tensor& gelu_of) const {
  TRIMTAB_ASSERT(!fp8(), "{} multiplies in fp8", name());
  Gemm(dy, Transpose::kNo, weight_->weight, Transpose::kNo, dx,
       {.gelu_of = gelu_of, .tf32 = context.types.tf32});
}

std::optional<Fp8Target> LinearGemms::InputTarget(const LayerContext& context) const {
  if (!fp8() || KeepsShard(context) || context.observer != nullptr) return std::nullopt;
  return context.fp8->Target(fp8_layer_, Operand::kInput, input_sharded_, context.tokens(),
                             weight_->spec.columns, MemoryTag::kActivations);
}

std::optional<Fp8Target> LinearGemms::GradientTarget(const LayerContext& context) const {
  if (!fp8() || context.observer != nullptr) return std::nullopt;
  return context.fp8->Target(fp8_layer_, Operand::kGradient, !input_sharded_, context.tokens(),
                             weight_->spec.rows, MemoryTag::kWorkspace);
}

void LinearGemms::Forward(const LayerContext& context, const Fp8Output& x,
                          const LinearExtras& extras, Tensor& y, LinearSaved& saved) const {
  saved.input_transposed = x.transposed;
  Fp8Product(context, x.rows, extras, y);
}

void LinearGemms::Keep(const LayerContext& context, const LinearOperand& x,
                       LinearSaved& saved) const {
  if (x.fp8.transposed.defined()) {
    saved.input_transposed = x.fp8.transposed;
    return;
  }
  if (!fp8() || KeepsShard(context)) {
    saved.input = x.matrix;
    return;
  }
  saved.input_transposed = Tensor::Empty(context.device, {x.matrix.dim(1), x.matrix.dim(0)},
                                         DType::kF8E4M3, MemoryTag::kActivations);
  context.fp8->Quantize(context.parallel, fp8_layer_, Operand::kInput, x.matrix, input_sharded_,
                        /*keep_scale=*/true, {}, saved.input_transposed);
}

void LinearGemms::Fp8Product(const LayerContext& context, const Tensor& rows,
                             const LinearExtras& extras, Tensor& y) const {
  TRIMTAB_ASSERT(!extras.gelu.defined(), "{} multiplies in fp8, without gelu", name());
  const Fp8Weight& weight = context.fp8->weight(fp8_layer_);
  Gemm(rows, Transpose::kNo, weight.rows, Transpose::kYes, y,
       {.bias = extras.bias,
        .addend = extras.residual,
        .scale_a = context.fp8->inverse(fp8_layer_, Operand::kInput),
        .scale_b = weight.inverse,
        .fp8_sums = context.fp8->sums()});
}

LinearGemms::Backward::Backward(const LinearGemms& products, const LayerContext& context,
                                const Tensor& dy)
    : products_(&products) {
  if (context.observer != nullptr) context.observer->OnBackward(products.name(), dy);
  if (!products.fp8()) {
    dy_ = dy;
    return;
  }
  const int64_t tokens = dy.dim(0);
  const int64_t out = dy.dim(1);
  dy_fp8_ = Tensor::Empty(context.device, {tokens, out}, DType::kF8E5M2, MemoryTag::kWorkspace);
  dy_fp8_transposed_ =
      Tensor::Empty(context.device, {out, tokens}, DType::kF8E5M2, MemoryTag::kWorkspace);
  context.fp8->Quantize(context.parallel, products.fp8_layer_, Operand::kGradient, dy,
                        !products.input_sharded_, /*keep_scale=*/false, dy_fp8_,
                        dy_fp8_transposed_);
}

LinearGemms::Backward::Backward(const LinearGemms& products, Fp8Output dy)
    : products_(&products),
      dy_fp8_(std::move(dy.rows)),
      dy_fp8_transposed_(std::move(dy.transposed)) {}

void LinearGemms::Backward::WeightGradient(const LayerContext& context, const LinearSaved& saved,
                                           const Tensor& x, bool accumulate,
                                           Parameter* bias) const {
  Tensor& gradient = products_->weight_->gradient;
  if (!products_->fp8()) {
    // The product only writes sums.
    Tensor sums = bias != nullptr ? bias->gradient : Tensor();
    const bool apart = bias != nullptr && accumulate;
    if (apart) {
      sums = Tensor::Empty(context.device, sums.shape(), sums.dtype(), MemoryTag::kWorkspace);
    }
    Gemm(dy_, Transpose::kYes, x, Transpose::kNo, gradient,
         {.accumulate = accumulate, .row_sums = sums, .tf32 = context.types.tf32});
    if (apart) Add(sums, bias->gradient);
    return;
  }
  TRIMTAB_ASSERT(bias == nullptr, "{} multiplies in fp8, without its bias", products_->name());
  Fp8State& fp8 = *context.fp8;
  const int layer = products_->fp8_layer_;
  Tensor input = saved.input_transposed;
  if (!input.defined()) {
    input =
        Tensor::Empty(context.device, {x.dim(1), x.dim(0)}, DType::kF8E4M3, MemoryTag::kWorkspace);
    fp8.Quantize(context.parallel, layer, Operand::kInput, x, products_->input_sharded_,
                 /*keep_scale=*/true, {}, input);
  }
  Gemm(dy_fp8_transposed_, Transpose::kNo, input, Transpose::kYes, gradient,
       {.accumulate = accumulate,
        .scale_a = fp8.inverse(layer, Operand::kGradient),
        .scale_b = fp8.inverse(layer, Operand::kInput)});
}

LinearGemms::Backward LinearGemms::Backward::WeightPart() const {
  Backward part = *this;
  part.dy_fp8_ = {};
  return part;
}

void LinearGemms::Backward::InputGradient(const LayerContext& context, Tensor& dx,
                                          const Tensor& gelu_of) const {
  if (!products_->fp8()) return products_->MultiplyBack(context, dy_, dx, gelu_of);
  TRIMTAB_ASSERT(!gelu_of.defined(), "{} multiplies in fp8, without gelu", products_->name());
  const Fp8Weight& fp8_weight = context.fp8->weight(products_->fp8_layer_);
  Gemm(dy_fp8_, Transpose::kNo, fp8_weight.transposed, Transpose::kYes, dx,
       {.scale_a = context.fp8->inverse(products_->fp8_layer_, Operand::kGradient),
        .scale_b = fp8_weight.inverse,
        .fp8_sums = context.fp8->gradient_sums()});
}

}  // namespace trimtab
