#include "engine/layers/linear.h"

#include <numeric>

#include "engine/ops/elementwise.h"
#include "engine/ops/gemm.h"

namespace trimtab {

Tensor GatherRows(const LayerContext& context, const Tensor& x) {
  if (!context.sequence_parallel()) return x;
  Tensor full = context.New({context.tokens(), x.dim(1)}, MemoryTag::kWorkspace);
  context.parallel.tp->AllGather(x, full);
  return full;
}

Tensor ReduceRows(const LayerContext& context, Tensor partial, MemoryTag tag) {
  if (!context.sequence_parallel()) {
    if (context.tp() > 1) context.parallel.tp->AllReduce(partial);
    return partial;
  }
  Tensor rows = context.New({context.rows(), partial.dim(1)}, tag);
  context.parallel.tp->ReduceScatter(partial, rows);
  return rows;
}

ColumnParallelLinear::ColumnParallelLinear(ParameterStore& store, const LayerContext& context,
                                           const std::string& name, int64_t in,
                                           const std::vector<int64_t>& output_blocks, bool bias) {
  const int64_t tp = context.tp();
  const int64_t rank = context.parallel.tp_rank;
  const int64_t out = std::accumulate(output_blocks.begin(), output_blocks.end(), int64_t{0});
  weight_ = &store.Declare({.name = name + ".weight",
                            .rows = out / tp,
                            .columns = in,
                            .init = InitKind::kNormal,
                            .init_std = context.model.init_std,
                            .partition = RowBlocksPartition(output_blocks, in, tp, rank)});
  if (!bias) return;
  bias_ = &store.Declare({.name = name + ".bias",
                          .rows = out / tp,
                          .is_matrix = false,
                          .partition = RowBlocksPartition(output_blocks, 1, tp, rank)});
}

Tensor ColumnParallelLinear::Forward(const LayerContext& context, const Tensor& x,
                                     MemoryTag tag) const {
  const Tensor full = GatherRows(context, x);
  Tensor y = context.New({context.tokens(), weight_->spec.rows}, tag);
  Gemm(full, Transpose::kNo, weight_->weight, Transpose::kYes, y, /*accumulate=*/false,
       bias_ != nullptr ? bias_->weight : Tensor());
  return y;
}

Tensor ColumnParallelLinear::Backward(const LayerContext& context, const Tensor& x,
                                      const Tensor& dy, bool accumulate) const {
  {
    const Tensor full = GatherRows(context, x);
    Gemm(dy, Transpose::kYes, full, Transpose::kNo, weight_->gradient, accumulate);
  }
  if (bias_ != nullptr) BiasBackward(dy, bias_->gradient, accumulate);
  Tensor dx = context.New({context.tokens(), weight_->spec.columns}, MemoryTag::kWorkspace);
  Gemm(dy, Transpose::kNo, weight_->weight, Transpose::kNo, dx);
  return ReduceRows(context, std::move(dx), MemoryTag::kWorkspace);
}

RowParallelLinear::RowParallelLinear(ParameterStore& store, const LayerContext& context,
                                     const std::string& name, int64_t in, int64_t out, bool bias,
                                     double init_std) {
  const int64_t tp = context.tp();
  weight_ = &store.Declare({.name = name + ".weight",
                            .rows = out,
                            .columns = in / tp,
                            .init = InitKind::kNormal,
                            .init_std = init_std,
                            .partition = ColumnPartition(out, in, tp, context.parallel.tp_rank)});
  if (!bias) return;
  bias_ = &store.Declare({.name = name + ".bias",
                          .rows = out,
                          .is_matrix = false,
                          .tensor_parallel = false,
                          .partition = WholePartition(out, 1)});
}

Tensor RowParallelLinear::Forward(const LayerContext& context, const Tensor& x,
                                  MemoryTag tag) const {
  // The reduce-scatter of sequence parallelism writes to another tensor: the product is transient.
  const MemoryTag product_tag = context.sequence_parallel() ? MemoryTag::kWorkspace : tag;
  Tensor product = context.New({context.tokens(), weight_->spec.rows}, product_tag);
  const bool fuse_bias = bias_ != nullptr && context.tp() == 1;
  Gemm(x, Transpose::kNo, weight_->weight, Transpose::kYes, product, /*accumulate=*/false,
       fuse_bias ? bias_->weight : Tensor());
  Tensor y = ReduceRows(context, std::move(product), tag);
  if (bias_ != nullptr && !fuse_bias) AddBias(bias_->weight, y);
  return y;
}

Tensor RowParallelLinear::Backward(const LayerContext& context, const Tensor& x, const Tensor& dy,
                                   bool accumulate) const {
  if (bias_ != nullptr) BiasBackward(dy, bias_->gradient, accumulate);
  const Tensor full = GatherRows(context, dy);
  Gemm(full, Transpose::kYes, x, Transpose::kNo, weight_->gradient, accumulate);
  Tensor dx = context.New({context.tokens(), weight_->spec.columns}, MemoryTag::kWorkspace);
  Gemm(full, Transpose::kNo, weight_->weight, Transpose::kNo, dx);
  return dx;
}

}  // namespace trimtab
