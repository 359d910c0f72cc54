#include "engine/layers/moe_experts.h"

#include <cmath>
#include <utility>

#include "engine/layers/mlp.h"
#include "engine/ops/activation.h"
#include "engine/ops/elementwise.h"

namespace trimtab {
namespace {

/// The rows of fc1 of every expert: one block each, or gate and up.
std::vector<int64_t> Fc1Blocks(const ModelConfig& model) {
  const auto blocks = static_cast<size_t>(model.moe.num_experts * (model.gated() ? 2 : 1));
  return std::vector<int64_t>(blocks, model.moe.ffn_hidden_size);
}

}  // namespace

MoeExperts::MoeExperts(ParameterStore& store, const LayerContext& context, const std::string& name)
    : experts_(context.model.moe.num_experts) {
  const ModelConfig& model = context.model;
  const int64_t hidden = model.hidden_size;
  const int64_t ffn = model.moe.ffn_hidden_size;
  const int64_t tp = context.tp();
  const int64_t tp_rank = context.parallel.tp_rank;
  const std::vector<int64_t> blocks = Fc1Blocks(model);
  const int64_t fc1_rows = experts_ * model.fc1_size(ffn) / tp;
  const double layers = static_cast<double>(model.num_layers);
  fc1_ = &store.Declare({.name = name + ".linear_fc1.weight",
                         .rows = fc1_rows,
                         .columns = hidden,
                         .init = InitKind::kNormal,
                         .init_std = model.init_std,
                         .partition = RowBlocksPartition(blocks, hidden, tp, tp_rank)});
  fc2_ = &store.Declare({.name = name + ".linear_fc2.weight",
                         .rows = experts_ * hidden,
                         .columns = ffn / tp,
                         .init = InitKind::kNormal,
                         .init_std = model.init_std / std::sqrt(2.0 * layers),
                         .partition = ColumnPartition(experts_ * hidden, ffn, tp, tp_rank)});
  if (!model.has_mlp_bias()) return;
  fc1_bias_ = &store.Declare({.name = name + ".linear_fc1.bias",
                              .rows = fc1_rows,
                              .is_matrix = false,
                              .partition = RowBlocksPartition(blocks, 1, tp, tp_rank)});
  fc2_bias_ = &store.Declare({.name = name + ".linear_fc2.bias",
                              .rows = experts_ * hidden,
                              .is_matrix = false,
                              .tensor_parallel = false,
                              .partition = WholePartition(experts_ * hidden, 1)});
}

Tensor MoeExperts::Matrices(const Tensor& parameter) const {
  return parameter.Reshape({experts_, parameter.dim(0) / experts_, parameter.dim(1)});
}

Tensor MoeExperts::Vectors(const Tensor& parameter) const {
  return parameter.Reshape({experts_, parameter.numel() / experts_});
}

Tensor MoeExperts::Activation(const LayerContext& context, const Tensor& fc1) const {
  Tensor activation = context.New({fc1.dim(0), fc2_->spec.columns}, MemoryTag::kActivations);
  (context.model.gated() ? GatedActivationForward : ActivationForward)(
      FunctionOf(context.model.activation), fc1, activation);
  return activation;
}

Tensor MoeExperts::Forward(const LayerContext& context, const Tensor& x, GroupRows rows,
                           MoeExpertsSaved& saved) const {
  const bool tf32 = context.types.tf32;
  const Tensor fc1 = Matrices(fc1_->weight);
  const Tensor fc2 = Matrices(fc2_->weight);
  saved.input = x;
  saved.fc1 = context.New({x.dim(0), fc1.dim(1)}, MemoryTag::kActivations);
  GroupedGemm(x, fc1, Transpose::kYes, rows, saved.fc1, tf32);
  if (fc1_bias_ != nullptr) GroupedAddBias(Vectors(fc1_bias_->weight), rows, saved.fc1);
  saved.activation = Activation(context, saved.fc1);
  Tensor y = context.New(x.shape(), MemoryTag::kActivations);
  GroupedGemm(saved.activation, fc2, Transpose::kYes, rows, y, tf32);
  if (fc2_bias_ != nullptr && context.parallel.tp_rank == 0) {
    GroupedAddBias(Vectors(fc2_bias_->weight), rows, y);
  }
  return y;
}

void MoeExperts::WeightGradient(const LayerContext& context, Parameter& weight, const Tensor& x,
                                GroupRows rows, const Tensor& dy, bool accumulate) const {
  const auto make = [this, &weight, x, dy, tf32 = context.types.tf32,
                     kept = std::vector<int64_t>(rows.begin(), rows.end())](const LayerContext&,
                                                                            bool add) {
    Tensor gradient = Matrices(weight.gradient);
    GroupedGemmWeights(dy, x, kept, gradient, add, tf32);
  };
  if (context.deferred == nullptr) return make(context, accumulate);
  context.deferred->push_back(make);
}

void MoeExperts::OutputBiasGradient(const LayerContext& context, GroupRows rows, const Tensor& dy,
                                    bool accumulate) const {
  // Every tp rank sees all rows. Sequence parallelism sums what the ranks make, so one makes it.
  if (!context.sequence_parallel() || context.parallel.tp_rank == 0) {
    Tensor gradient = Vectors(fc2_bias_->gradient);
    GroupedBiasBackward(dy, rows, gradient, accumulate);
  } else if (!accumulate) {
    Fill(fc2_bias_->gradient, 0.0f);
  }
}

Tensor MoeExperts::Backward(const LayerContext& context, MoeExpertsSaved& saved, GroupRows rows,
                            const Tensor& dy, bool accumulate) const {
  const bool tf32 = context.types.tf32;
  if (fc2_bias_ != nullptr) OutputBiasGradient(context, rows, dy, accumulate);
  WeightGradient(context, *fc2_, saved.activation, rows, dy, accumulate);
  Tensor dactivation = context.New(saved.activation.shape(), MemoryTag::kWorkspace);
  GroupedGemm(dy, Matrices(fc2_->weight), Transpose::kNo, rows, dactivation, tf32);
  Tensor dfc1 = dactivation;
  if (context.model.gated()) {
    dfc1 = context.New(saved.fc1.shape(), MemoryTag::kWorkspace);
    GatedActivationBackward(FunctionOf(context.model.activation), saved.fc1, dactivation, dfc1);
    dactivation = {};
  } else {
    ActivationBackward(FunctionOf(context.model.activation), saved.fc1, dactivation, dfc1);
  }
  if (fc1_bias_ != nullptr) {
    Tensor gradient = Vectors(fc1_bias_->gradient);
    GroupedBiasBackward(dfc1, rows, gradient, accumulate);
  }
  WeightGradient(context, *fc1_, saved.input, rows, dfc1, accumulate);
  Tensor dx = context.New(saved.input.shape(), MemoryTag::kWorkspace);
  GroupedGemm(dfc1, Matrices(fc1_->weight), Transpose::kNo, rows, dx, tf32);
  return dx;
}

}  // namespace trimtab
