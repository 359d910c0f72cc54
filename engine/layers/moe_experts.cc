#include "engine/layers/moe_experts.h"

#include <cmath>
#include <utility>

#include "engine/layers/mlp_activation.h"
#include "engine/ops/elementwise.h"

namespace trimtab {
namespace {

/// How experts are cut over the ranks.
struct ExpertCut {
  int64_t experts = 0;  // E / ep
  int64_t first = 0;    // of them
  int64_t all = 0;      // E
  int64_t etp = 1;
  int64_t etp_rank = 0;
};

ExpertCut CutOf(const LayerContext& context) {
  const ParallelContext& parallel = context.parallel;
  const int64_t all = context.model.moe.num_experts;
  const int64_t experts = all / parallel.layout.ep;
  return {experts, parallel.ep_rank * experts, all, parallel.layout.etp, parallel.etp_rank};
}

/// Of a parameter that has so many blocks of so many rows for every expert, one expert after the
/// other: this rank's share of each block of its experts.
Partition RowsOfExperts(const ExpertCut& cut, int64_t blocks, int64_t block_rows, int64_t columns) {
  Partition partition = {.full_rows = cut.all * blocks * block_rows,
                         .full_columns = columns,
                         .segments = {},
                         .column_begin = 0};
  const int64_t share = block_rows / cut.etp;
  for (int64_t i = 0; i < cut.experts * blocks; ++i) {
    const int64_t block = cut.first * blocks + i;
    partition.segments.push_back({i * share, block * block_rows + cut.etp_rank * share, share});
  }
  return partition;
}

/// Of a parameter of so many rows for every expert: all rows of this rank's experts.
Partition WholeExperts(const ExpertCut& cut, int64_t rows, int64_t columns) {
  Partition partition = WholePartition(cut.all * rows, columns);
  partition.segments = {{0, cut.first * rows, cut.experts * rows}};
  return partition;
}

/// The same, of which this rank has a share of the columns.
Partition ColumnsOfExperts(const ExpertCut& cut, int64_t rows, int64_t columns) {
  Partition partition = WholeExperts(cut, rows, columns);
  partition.column_begin = cut.etp_rank * (columns / cut.etp);
  return partition;
}

}  // namespace

MoeExperts::MoeExperts(ParameterStore& store, const LayerContext& context, const ModuleName& name)
    : experts_(CutOf(context).experts) {
  const ModelConfig& model = context.model;
  const ExpertCut cut = CutOf(context);
  const int64_t hidden = model.hidden_size;
  const int64_t ffn = model.moe.ffn_hidden_size;
  const int64_t blocks = model.gated() ? 2 : 1;  // gate and up
  const int64_t fc1_rows = experts_ * blocks * ffn / cut.etp;
  const double layers = static_cast<double>(model.num_layers);
  fc1_ = &store.Declare({.name = name + ".linear_fc1.weight",
                         .rows = fc1_rows,
                         .columns = hidden,
                         .grid = Grid::kExperts,
                         .multiplied = experts_,
                         .init = InitKind::kNormal,
                         .init_std = model.init_std,
                         .partition = RowsOfExperts(cut, blocks, ffn, hidden)});
  fc2_ = &store.Declare({.name = name + ".linear_fc2.weight",
                         .rows = experts_ * hidden,
                         .columns = ffn / cut.etp,
                         .grid = Grid::kExperts,
                         .multiplied = experts_,
                         .init = InitKind::kNormal,
                         .init_std = model.init_std / std::sqrt(2.0 * layers),
                         .partition = ColumnsOfExperts(cut, hidden, ffn)});
  if (!model.has_mlp_bias()) return;
  fc1_bias_ = &store.Declare({.name = name + ".linear_fc1.bias",
                              .rows = fc1_rows,
                              .is_matrix = false,
                              .grid = Grid::kExperts,
                              .partition = RowsOfExperts(cut, blocks, ffn, 1)});
  fc2_bias_ = &store.Declare({.name = name + ".linear_fc2.bias",
                              .rows = experts_ * hidden,
                              .is_matrix = false,
                              .grid = Grid::kExperts,
                              .tensor_parallel = false,
                              .partition = WholeExperts(cut, hidden, 1)});
}

Tensor MoeExperts::Matrices(const Tensor& parameter) const {
  return parameter.Reshape({experts_, parameter.dim(0) / experts_, parameter.dim(1)});
}

Tensor MoeExperts::Vectors(const Tensor& parameter) const {
  return parameter.Reshape({experts_, parameter.numel() / experts_});
}

void MoeExperts::Multiply(const LayerContext& context, const Parameter& weight, const Tensor& x,
                          GroupRows rows, Tensor& y) const {
  if (weight.packed.defined()) return GroupedPackedGemm(x, weight.packed, rows, y);
  GroupedGemm(x, Matrices(weight.weight), Transpose::kYes, rows, y, context.types.tf32);
}

Tensor MoeExperts::Forward(const LayerContext& context, const Tensor& x, GroupRows rows,
                           MoeExpertsSaved& saved) const {
  saved.input = x;
  saved.fc1 = context.New({x.dim(0), fc1_->spec.rows / experts_}, MemoryTag::kActivations);
  Multiply(context, *fc1_, x, rows, saved.fc1);
  if (fc1_bias_ != nullptr) GroupedAddBias(Vectors(fc1_bias_->weight), rows, saved.fc1);
  saved.activation = MlpActivation(context, saved.fc1);
  Tensor y = context.New(x.shape(), MemoryTag::kActivations);
  Multiply(context, *fc2_, saved.activation, rows, y);
  if (fc2_bias_ != nullptr && context.parallel.etp_rank == 0) {
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

Tensor MoeExperts::Backward(const LayerContext& context, MoeExpertsSaved& saved, GroupRows rows,
                            const Tensor& dy, bool accumulate) const {
  const bool tf32 = context.types.tf32;
  if (fc2_bias_ != nullptr) {
    Tensor gradient = Vectors(fc2_bias_->gradient);
    GroupedBiasBackward(dy, rows, gradient, accumulate);
  }
  WeightGradient(context, *fc2_, saved.activation, rows, dy, accumulate);
  Tensor dactivation = context.New(saved.activation.shape(), MemoryTag::kWorkspace);
  GroupedGemm(dy, Matrices(fc2_->weight), Transpose::kNo, rows, dactivation, tf32);
  const Tensor dfc1 = MlpActivationBackward(context, saved.fc1, std::move(dactivation));
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
