#include "engine/layers/linear/grouped_gemms.h"

#include <algorithm>
#include <numeric>

#include "engine/ops/fp8/grouped_quantize.h"

namespace trimtab {
namespace {

using Operand = Fp8State::Operand;

Tensor NewTransposed(const LayerContext& context, GroupRows rows, int64_t columns, DType dtype,
                     MemoryTag tag) {
  return Tensor::Empty(context.device, {TransposedGroupsSize(rows, columns)}, dtype, tag);
}

/// The rows of the fullest group: a run of x, and which group it is.
struct FullestGroup {
  explicit FullestGroup(GroupRows rows) {
    const auto fullest = std::max_element(rows.begin(), rows.end());
    group = fullest - rows.begin();
    first = std::accumulate(rows.begin(), fullest, int64_t{0});
    count = *fullest;
  }

  int64_t group = 0;
  int64_t first = 0;
  int64_t count = 0;
};

}  // namespace

GroupedGemms::GroupedGemms(const LayerContext& context, Parameter& weight) : weight_(&weight) {
  if (context.fp8 != nullptr) fp8_layer_ = context.fp8->Declare(LinearName(weight), weight);
}

Tensor GroupedGemms::Matrices(const Tensor& parameter) const {
  return parameter.Reshape({weight_->spec.multiplied, out(), weight_->spec.columns});
}

void GroupedGemms::Quantize(const LayerContext& context, Operand operand, const Tensor& x,
                            GroupRows rows, bool keep_scale, const Fp8Output& out) const {
  context.fp8->QuantizeGroups(context.parallel, fp8_layer_, operand, x, rows, keep_scale, out.rows,
                              out.transposed);
}

void GroupedGemms::Forward(const LayerContext& context, const Tensor& x, GroupRows rows, Tensor& y,
                           LinearSaved& saved) const {
  if (context.observer != nullptr && x.dim(0) > 0) {
    const FullestGroup shown(rows);
    const Shape matrix = {out(), weight_->spec.columns};
    const Tensor& weight = weight_->weight;  // undefined where serving has packed it
    context.observer->OnForward(
        LinearName(*weight_), x.Rows(shown.first, shown.count),
        weight.defined() ? weight.Slice(shown.group * matrix.numel(), matrix) : Tensor());
  }
  if (!fp8()) {
    saved.input = x;
    if (weight_->packed.defined()) return GroupedPackedGemm(x, weight_->packed, rows, y);
    return GroupedGemm(x, Matrices(weight_->weight), Transpose::kYes, rows, y,
                       {.tf32 = context.types.tf32});
  }
  const Tensor codes =
      Tensor::Empty(context.device, x.shape(), DType::kF8E4M3, MemoryTag::kWorkspace);
  saved.input_transposed =
      NewTransposed(context, rows, x.dim(1), DType::kF8E4M3, MemoryTag::kActivations);
  Quantize(context, Operand::kInput, x, rows, /*keep_scale=*/false,
           {.rows = codes, .transposed = saved.input_transposed});
  const Fp8Weight& weight = context.fp8->weight(fp8_layer_);
  GroupedGemm(codes, weight.rows, Transpose::kYes, rows, y,
              {.scale_a = context.fp8->inverse(fp8_layer_, Operand::kInput),
               .scale_b = weight.inverse,
               .fp8_sums = context.fp8->sums()});
}

void GroupedGemms::Keep(const LayerContext& context, const Tensor& x, GroupRows rows,
                        LinearSaved& saved) const {
  if (!fp8()) {
    saved.input = x;
    return;
  }
  saved.input_transposed =
      NewTransposed(context, rows, x.dim(1), DType::kF8E4M3, MemoryTag::kActivations);
  Quantize(context, Operand::kInput, x, rows, /*keep_scale=*/true,
           {.transposed = saved.input_transposed});
}

GroupedGemms::Backward::Backward(const GroupedGemms& products, const LayerContext& context,
                                 const Tensor& dy, GroupRows rows)
    : products_(&products), rows_(rows.begin(), rows.end()), dy_(dy) {
  if (context.observer != nullptr && dy.dim(0) > 0) {
    const FullestGroup shown(rows);
    context.observer->OnBackward(LinearName(*products.weight_), dy.Rows(shown.first, shown.count));
  }
  if (!products.fp8()) return;
  dy_ = Tensor::Empty(context.device, dy.shape(), DType::kF8E5M2, MemoryTag::kWorkspace);
  dy_transposed_ = NewTransposed(context, rows, dy.dim(1), DType::kF8E5M2, MemoryTag::kWorkspace);
  products.Quantize(context, Operand::kGradient, dy, rows, /*keep_scale=*/false,
                    {.rows = dy_, .transposed = dy_transposed_});
}

void GroupedGemms::Backward::WeightGradient(const LayerContext& context, const LinearSaved& saved,
                                            bool accumulate) const {
  if (!products_->weight_->spec.trainable) return;
  if (context.deferred == nullptr) return MakeWeightGradient(context, saved, accumulate);
  Backward part = *this;
  if (products_->fp8()) part.dy_ = {};
  context.deferred->push_back([part, saved](const LayerContext& later, bool add) {
    part.MakeWeightGradient(later, saved, add);
  });
}

void GroupedGemms::Backward::MakeWeightGradient(const LayerContext& context,
                                                const LinearSaved& saved, bool accumulate) const {
  Tensor gradient = products_->Matrices(products_->weight_->gradient);
  if (!products_->fp8()) {
    return GroupedGemmWeights(dy_, saved.input, rows_, gradient,
                              {.accumulate = accumulate, .tf32 = context.types.tf32});
  }
  const int layer = products_->fp8_layer_;
  GroupedGemmWeights(dy_transposed_, saved.input_transposed, rows_, gradient,
                     {.accumulate = accumulate,
                      .scale_a = context.fp8->inverse(layer, Operand::kGradient),
                      .scale_b = context.fp8->inverse(layer, Operand::kInput)});
}

void GroupedGemms::Backward::InputGradient(const LayerContext& context, Tensor& dx) const {
  if (!products_->fp8()) {
    return GroupedGemm(dy_, products_->Matrices(products_->weight_->weight), Transpose::kNo, rows_,
                       dx, {.tf32 = context.types.tf32});
  }
  const Fp8Weight& weight = context.fp8->weight(products_->fp8_layer_);
  GroupedGemm(dy_, weight.transposed, Transpose::kYes, rows_, dx,
              {.scale_a = context.fp8->inverse(products_->fp8_layer_, Operand::kGradient),
               .scale_b = weight.inverse,
               .fp8_sums = context.fp8->gradient_sums()});
}

}  // namespace trimtab
