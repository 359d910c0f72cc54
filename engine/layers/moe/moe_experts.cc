#include "engine/layers/moe/moe_experts.h"

#include <utility>

#include "engine/layers/blocks/recompute.h"
#include "engine/layers/mlp/mlp_activation.h"

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

ExpertCut CutOf(const LayerContext& context, int64_t all) {
  const ParallelContext& parallel = context.parallel;
  const int64_t experts = all / parallel.layout.ep;
  return {experts, parallel.ep_rank * experts, all, parallel.layout.etp, parallel.etp_rank};
}

/// Blocks of rows of an expert's first matrix: gate and up, or one.
int64_t Blocks(const MlpSpec& spec) { return spec.gated() ? 2 : 1; }

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

/// The weight [E / ep * fc1 / etp, C].
Parameter& DeclareFc1(ParameterStore& store, const MlpSpec& spec, const ExpertCut& cut,
                      const ModuleName& name) {
  return store.Declare(
      {.name = name + ".linear_fc1.weight",
       .rows = cut.experts * Blocks(spec) * spec.ffn_hidden_size / cut.etp,
       .columns = spec.hidden_size,
       .grid = ParallelGrid::kExperts,
       .multiplied = cut.experts,
       .init = InitKind::kNormal,
       .init_std = spec.init_std,
       .partition = RowsOfExperts(cut, Blocks(spec), spec.ffn_hidden_size, spec.hidden_size)});
}

/// The weight [E / ep * C, F / etp].
Parameter& DeclareFc2(ParameterStore& store, const MlpSpec& spec, const ExpertCut& cut,
                      const ModuleName& name) {
  return store.Declare(
      {.name = name + ".linear_fc2.weight",
       .rows = cut.experts * spec.hidden_size,
       .columns = spec.ffn_hidden_size / cut.etp,
       .grid = ParallelGrid::kExperts,
       .multiplied = cut.experts,
       .init = InitKind::kNormal,
       .init_std = spec.output_init_std,
       .partition = ColumnsOfExperts(cut, spec.hidden_size, spec.ffn_hidden_size)});
}

}  // namespace

MoeExperts::MoeExperts(ParameterStore& store, const LayerContext& context, const ModuleName& name,
                       const MlpSpec& spec, int64_t count)
    : activation_(spec.activation),
      experts_(CutOf(context, count).experts),
      fc1_(context, DeclareFc1(store, spec, CutOf(context, count), name)),
      fc2_(context, DeclareFc2(store, spec, CutOf(context, count), name)) {
  if (!spec.bias) return;
  const ExpertCut cut = CutOf(context, count);
  fc1_bias_ =
      &store.Declare({.name = name + ".linear_fc1.bias",
                      .rows = fc1_.weight().spec.rows,
                      .is_matrix = false,
                      .grid = ParallelGrid::kExperts,
                      .partition = RowsOfExperts(cut, Blocks(spec), spec.ffn_hidden_size, 1)});
  fc2_bias_ = &store.Declare({.name = name + ".linear_fc2.bias",
                              .rows = experts_ * spec.hidden_size,
                              .is_matrix = false,
                              .grid = ParallelGrid::kExperts,
                              .tensor_parallel = false,
                              .partition = WholeExperts(cut, spec.hidden_size, 1)});
}

Tensor MoeExperts::Vectors(const Tensor& parameter) const {
  return parameter.Reshape({experts_, parameter.numel() / experts_});
}

Tensor MoeExperts::Forward(const LayerContext& context, const Tensor& x, GroupRows rows,
                           MoeExpertsSaved& saved) const {
  saved.fc1 = context.New({x.dim(0), fc1_.out()}, MemoryTag::kActivations);
  fc1_.Forward(context, x, rows, saved.fc1, saved.linear_fc1);
  if (fc1_bias_ != nullptr) GroupedAddBias(Vectors(fc1_bias_->weight), rows, saved.fc1);
  const Tensor activation = MlpActivation(context, activation_, saved.fc1);
  Tensor y = context.New(x.shape(), MemoryTag::kActivations);
  fc2_.Forward(context, activation, rows, y, saved.linear_fc2);
  if (fc2_bias_ != nullptr && context.parallel.etp_rank == 0) {
    GroupedAddBias(Vectors(fc2_bias_->weight), rows, y);
  }
  return y;
}

Tensor MoeExperts::Backward(const LayerContext& context, MoeExpertsSaved& saved, GroupRows rows,
                            const Tensor& dy, bool accumulate) const {
  if (!saved.linear_fc2.defined()) {
    const RecomputePass recompute(context.device);
    fc2_.Keep(context, MlpActivation(context, activation_, saved.fc1), rows, saved.linear_fc2);
  }
  if (fc2_bias_ != nullptr && fc2_bias_->spec.trainable) {
    Tensor gradient = Vectors(fc2_bias_->gradient);
    GroupedBiasBackward(dy, rows, gradient, accumulate);
  }
  Tensor dactivation;
  {
    const GroupedGemms::Backward backward(fc2_, context, dy, rows);
    backward.WeightGradient(context, saved.linear_fc2, accumulate);
    dactivation = context.New({dy.dim(0), fc2_.weight().spec.columns}, MemoryTag::kWorkspace);
    backward.InputGradient(context, dactivation);
  }
  const Tensor dfc1 =
      MlpActivationBackward(context, activation_, saved.fc1, std::move(dactivation));
  if (fc1_bias_ != nullptr && fc1_bias_->spec.trainable) {
    Tensor gradient = Vectors(fc1_bias_->gradient);
    GroupedBiasBackward(dfc1, rows, gradient, accumulate);
  }
  const GroupedGemms::Backward backward(fc1_, context, dfc1, rows);
  backward.WeightGradient(context, saved.linear_fc1, accumulate);
  Tensor dx = context.New(dy.shape(), MemoryTag::kWorkspace);
  backward.InputGradient(context, dx);
  return dx;
}

}  // namespace trimtab
