#include "engine/layers/linear/linear.h"

#include <utility>

#include "engine/layers/linear/tp_overlap.h"
#include "engine/ops/elementwise/elementwise.h"
#include "engine/ops/gemm/gemm.h"

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

namespace {

/// A parameter of a column-parallel layer with so many columns, split by rows.
ParameterSpec ColumnSpec(const LayerContext& context, const ModuleName& name, int64_t columns,
                         const RowBlocks& output_blocks, int64_t copies) {
  ParameterSpec spec;
  spec.name = name;
  spec.columns = columns;
  spec.partition =
      RowBlocksPartition(output_blocks, columns, context.tp(), context.parallel.tp_rank, copies);
  for (const RowSegment& segment : spec.partition.segments) spec.rows += segment.rows;
  if (copies > 1) {
    const int64_t first = spec.partition.segments.begin()->rows;
    spec.copied = {.first = first, .rows = spec.rows - first, .copies = copies};
  }
  return spec;
}

/// The [out / tp, in] weight of a column-parallel layer.
Parameter& DeclareColumnWeight(ParameterStore& store, const LayerContext& context,
                               const ModuleName& name, int64_t in, const RowBlocks& output_blocks,
                               double init_std, int64_t copies) {
  ParameterSpec spec = ColumnSpec(context, name + ".weight", in, output_blocks, copies);
  spec.multiplied = 1;
  spec.init = InitKind::kNormal;
  spec.init_std = init_std;
  return store.Declare(std::move(spec));
}

/// The [out, in / tp] weight of a row-parallel layer.
Parameter& DeclareRowWeight(ParameterStore& store, const LayerContext& context,
                            const ModuleName& name, int64_t in, int64_t out, double init_std) {
  return store.Declare(
      {.name = name + ".weight",
       .rows = out,
       .columns = in / context.tp(),
       .multiplied = 1,
       .init = InitKind::kNormal,
       .init_std = init_std,
       .partition = ColumnPartition(out, in, context.tp(), context.parallel.tp_rank)});
}

bool IsTrained(const Parameter* parameter) {
  return parameter != nullptr && parameter->spec.trainable;
}

/// The bias of a layer, if it has one and trains it, where its gradient is made beside the
/// weight's: both are made at once, and in 16 bits or more.
Parameter* BiasBeside(const LayerContext& context, const LinearGemms& products, Parameter* bias) {
  const bool beside = context.deferred == nullptr && !products.fp8() && products.trainable();
  return beside && IsTrained(bias) ? bias : nullptr;
}

}  // namespace

ColumnParallelLinear::ColumnParallelLinear(ParameterStore& store, const LayerContext& context,
                                           const ModuleName& name, int64_t in,
                                           const RowBlocks& output_blocks, bool bias,
                                           double init_std, int64_t copies)
    : products_(context,
                DeclareColumnWeight(store, context, name, in, output_blocks, init_std, copies),
                /*input_sharded=*/false) {
  if (!bias) return;
  ParameterSpec spec = ColumnSpec(context, name + ".bias", 1, output_blocks, copies);
  spec.is_matrix = false;
  bias_ = &store.Declare(std::move(spec));
}

Tensor ColumnParallelLinear::Forward(const LayerContext& context, LinearOperand x, MemoryTag tag,
                                     LinearSaved& saved, const Tensor& gelu) const {
  const LinearExtras extras = {.bias = bias_ != nullptr ? bias_->weight : Tensor(), .gelu = gelu};
  const bool written = x.fp8.rows.defined();
  if (GathersInChunks(context)) {
    TRIMTAB_ASSERT(!gelu.defined(), "{} is multiplied in chunks, without gelu", weight().spec.name);
    Tensor y = context.New({context.tokens(), weight().spec.rows}, tag);
    GatherInChunks(context, x.matrix, [&](const Tensor& rows, const RowChunk& chunk) {
      Tensor product = context.New({chunk.count(), y.dim(1)}, MemoryTag::kWorkspace);
      products_.Multiply(context, rows, extras, product);
      SpreadRows(product, chunk, y);
    });
    saved.input = x.matrix;
    return y;
  }
  const Tensor full = written ? Tensor() : GatherRows(context, x.matrix);
  Tensor y = context.New({context.tokens(), weight().spec.rows}, tag);
  if (written) {
    products_.Forward(context, x.fp8, extras, y, saved);
  } else {
    products_.Forward(context, full, x.matrix, extras, y, saved);
  }
  return y;
}

Tensor ColumnParallelLinear::Backward(const LayerContext& context, const LinearSaved& saved,
                                      LinearOperand dy, bool accumulate) const {
  const bool written = dy.fp8.rows.defined();
  const bool beside = BiasBeside(context, products_, bias_) != nullptr;
  if (IsTrained(bias_) && !written && !beside) {
    BiasBackward(dy.matrix, bias_->gradient, accumulate);
  }
  if (context.tp_chunks() > 1) return BackwardInChunks(context, saved, dy.matrix, accumulate);
  Tensor dx;
  {
    const LinearGemms::Backward backward =
        written ? LinearGemms::Backward(products_, std::move(dy.fp8))
                : LinearGemms::Backward(products_, context, dy.matrix);
    if (context.deferred == nullptr) {
      WeightGradient(context, backward, saved, accumulate, BiasBeside(context, products_, bias_));
    } else {
      Defer(context, backward, saved);
    }
    dx = context.New({context.tokens(), weight().spec.columns}, MemoryTag::kWorkspace);
    backward.InputGradient(context, dx);
  }
  return ReduceRows(context, std::move(dx), MemoryTag::kWorkspace);
}

Tensor ColumnParallelLinear::BackwardInChunks(const LayerContext& context, const LinearSaved& saved,
                                              const Tensor& dy, bool accumulate) const {
  const LinearGemms::Backward backward(products_, context, dy);
  // The whole input arrives while the gradient of the shard is made and summed.
  Tensor input = saved.input;
  CommHandle gather;
  if (context.deferred == nullptr && context.sequence_parallel() && products_.trainable()) {
    input = context.New({context.tokens(), weight().spec.columns}, MemoryTag::kWorkspace);
    gather = context.parallel.tp->AllGatherAsync(saved.input, input);
  }
  ChunkedReduction dx(context, weight().spec.columns, MemoryTag::kWorkspace,
                      [&](const RowChunk& chunk, Tensor& partial) {
                        products_.MultiplyBack(context, CollectRows(context, dy, chunk), partial);
                      });
  gather.Wait();
  if (context.deferred != nullptr) {
    Defer(context, backward, saved);
  } else if (products_.trainable()) {
    backward.WeightGradient(context, saved, input, accumulate,
                            BiasBeside(context, products_, bias_));
  }
  return dx.Take();
}

void ColumnParallelLinear::Defer(const LayerContext& context, const LinearGemms::Backward& backward,
                                 const LinearSaved& saved) const {
  if (!products_.trainable()) return;
  context.deferred->push_back(
      [this, part = backward.WeightPart(), saved](const LayerContext& later, bool add) {
        WeightGradient(later, part, saved, add, /*bias=*/nullptr);
      });
}

void ColumnParallelLinear::WeightGradient(const LayerContext& context,
                                          const LinearGemms::Backward& backward,
                                          const LinearSaved& saved, bool accumulate,
                                          Parameter* bias) const {
  if (!products_.trainable()) return;
  const Tensor full = products_.NeedsInput(saved) ? GatherRows(context, saved.input) : Tensor();
  backward.WeightGradient(context, saved, full, accumulate, bias);
}

RowParallelLinear::RowParallelLinear(ParameterStore& store, const LayerContext& context,
                                     const ModuleName& name, int64_t in, int64_t out, bool bias,
                                     double init_std)
    : products_(context, DeclareRowWeight(store, context, name, in, out, init_std),
                /*input_sharded=*/true) {
  if (!bias) return;
  bias_ = &store.Declare({.name = name + ".bias",
                          .rows = out,
                          .is_matrix = false,
                          .tensor_parallel = false,
                          .partition = WholePartition(out, 1)});
}

Tensor RowParallelLinear::Forward(const LayerContext& context, LinearOperand x, MemoryTag tag,
                                  LinearSaved& saved, const Tensor& residual) const {
  const int64_t out = products_.weight().spec.rows;
  const LinearExtras extras = {.bias = bias_ != nullptr ? bias_->weight : Tensor(),
                               .residual = residual};
  Tensor y;
  if (context.tp_chunks() > 1) {
    ChunkedReduction sum(context, out, tag, [&](const RowChunk& chunk, Tensor& partial) {
      products_.Multiply(context, CollectRows(context, x.matrix, chunk), /*extras=*/{}, partial);
    });
    saved.input = x.matrix;
    y = sum.Take();
  } else {
    // The reduce-scatter of sequence parallelism writes to another tensor: the product is
    // transient.
    Tensor product = context.New({context.tokens(), out},
                                 context.sequence_parallel() ? MemoryTag::kWorkspace : tag);
    const LinearExtras in_product = context.tp() == 1 ? extras : LinearExtras();
    if (x.fp8.rows.defined()) {
      products_.Forward(context, x.fp8, in_product, product, saved);
    } else {
      products_.Forward(context, x.matrix, x.matrix, in_product, product, saved);
    }
    y = ReduceRows(context, std::move(product), tag);
  }
  if (context.tp() == 1) return y;
  if (extras.bias.defined()) {
    AddBias(extras.bias, y, extras.residual);
  } else if (extras.residual.defined()) {
    Add(extras.residual, y);
  }
  return y;
}

std::optional<Fp8Target> RowParallelLinear::GradientTarget(const LayerContext& context) const {
  if (context.sequence_parallel() || context.fp8 == nullptr || !context.fp8->has_history()) {
    return std::nullopt;
  }
  return products_.GradientTarget(context);
}

Tensor RowParallelLinear::Backward(const LayerContext& context, const LinearSaved& saved,
                                   LinearOperand operand, bool accumulate,
                                   const Tensor& gelu_of) const {
  const Tensor& dy = operand.matrix;
  // With sequence parallelism the weight's gradient is that of all rows, the bias's of a shard's.
  Parameter* const beside =
      context.sequence_parallel() ? nullptr : BiasBeside(context, products_, bias_);
  if (IsTrained(bias_) && beside == nullptr) BiasBackward(dy, bias_->gradient, accumulate);
  const int64_t in = products_.weight().spec.columns;
  if (GathersInChunks(context)) {
    TRIMTAB_ASSERT(!gelu_of.defined(), "{} is multiplied in chunks, without gelu",
                   products_.weight().spec.name);
    // For the weight's gradient.
    Tensor full;
    if (products_.trainable()) {
      full = context.New({context.tokens(), dy.dim(1)}, MemoryTag::kWorkspace);
    }
    Tensor dx = context.New({context.tokens(), in}, MemoryTag::kWorkspace);
    GatherInChunks(context, dy, [&](const Tensor& rows, const RowChunk& chunk) {
      if (full.defined()) SpreadRows(rows, chunk, full);
      Tensor product = context.New({chunk.count(), in}, MemoryTag::kWorkspace);
      products_.MultiplyBack(context, rows, product);
      SpreadRows(product, chunk, dx);
    });
    if (!full.defined()) return dx;
    WeightGradient(context, LinearGemms::Backward(products_, context, full), saved, accumulate,
                   beside);
    return dx;
  }
  Tensor full = GatherRows(context, dy);
  const bool deferred = context.deferred != nullptr && products_.trainable();
  if (deferred && !context.sequence_parallel() && !products_.fp8()) {
    full = context.New(dy.shape(), MemoryTag::kActivations);
    Copy(dy, full);
  }
  const LinearGemms::Backward backward =
      operand.fp8.rows.defined() ? LinearGemms::Backward(products_, std::move(operand.fp8))
                                 : LinearGemms::Backward(products_, context, full);
  WeightGradient(context, backward, saved, accumulate, beside);
  Tensor dx = context.New({context.tokens(), in}, MemoryTag::kWorkspace);
  backward.InputGradient(context, dx, gelu_of);
  return dx;
}

void RowParallelLinear::WeightGradient(const LayerContext& context,
                                       const LinearGemms::Backward& backward,
                                       const LinearSaved& saved, bool accumulate,
                                       Parameter* bias) const {
  if (!products_.trainable()) return;
  if (context.deferred == nullptr) {
    return backward.WeightGradient(context, saved, saved.input, accumulate, bias);
  }
  context.deferred->push_back(
      [part = backward.WeightPart(), saved](const LayerContext& later, bool add) {
        part.WeightGradient(later, saved, saved.input, add);
      });
}

}  // namespace trimtab
