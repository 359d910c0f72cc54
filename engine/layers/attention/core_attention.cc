#include "engine/layers/attention/core_attention.h"

#include <utility>

#include "engine/layers/attention/context_parallel.h"
#include "engine/layers/blocks/recompute.h"
#include "engine/ops/attention/attention_sink.h"

namespace trimtab {
CoreAttention::CoreAttention(ParameterStore& store, const LayerContext& context,
                             const ModuleName& name, const AttentionSpec& spec)
    : spec_(spec),
      linear_proj_(store, context, name + ".linear_proj", spec.out_size(), spec.hidden_size,
                   spec.output_bias, spec.output_init_std) {
  if (!spec.sinks) return;
  sinks_ = &store.Declare(
      {.name = name + ".softmax_offset",
       .rows = spec.heads / context.tp(),
       .is_matrix = false,
       .partition = RowBlocksPartition({spec.heads}, 1, context.tp(), context.parallel.tp_rank)});
}

AttentionShape CoreAttention::ShapeOf(const LayerContext& context) const {
  const int64_t heads = spec_.heads / context.tp();
  AttentionShape shape = {
      .rows = context.row_layout(),
      .heads = heads,
      .kv_heads = spec_.kv_heads_of_rank(context.tp()),
      .head_size = spec_.head_size,
      .scores = {.scale = spec_.scale, .soft_cap = spec_.soft_cap, .window = spec_.window},
      .value_head_size = spec_.value_size};
  if (context.masks_documents()) {
    // Blocks of context parallelism count what a window hides.
    const int64_t window = context.parallel.layout.cp > 1 ? 0 : spec_.window;
    shape.visible_share = context.packing->VisibleShare(context.sequence, window);
  }
  if (spec_.alibi) {
    shape.scores.alibi_heads = spec_.heads;
    shape.scores.alibi_first = context.parallel.tp_rank * heads;
  }
  return shape;
}

void CoreAttention::Attend(const LayerContext& context, CoreAttentionSaved& saved) const {
  const AttentionShape shape = ShapeOf(context);
  saved.out = context.New({shape.tokens(), shape.out_size()}, MemoryTag::kActivations);
  if (context.paged != nullptr) {
    StoreKv(shape, saved.qkv, *context.cache);
    const Tensor sinks = sinks_ != nullptr ? sinks_->weight : Tensor();
    return PagedAttention(shape, saved.qkv, *context.cache, sinks, saved.out);
  }
  saved.log_sum_exp =
      context.NewF32({shape.rows.batch, shape.heads, shape.rows.sequence}, MemoryTag::kActivations);
  if (context.parallel.layout.cp > 1) {
    ContextAttentionForward(context, shape, saved.qkv, saved.out, saved.log_sum_exp);
  } else {
    AttentionForward(shape, saved.qkv, saved.out, saved.log_sum_exp);
  }
  if (sinks_ != nullptr) AttentionSink(shape, sinks_->weight, saved.out, saved.log_sum_exp);
}

Tensor CoreAttention::Forward(const LayerContext& context, CoreAttentionSaved& saved,
                              const Tensor& residual) const {
  Attend(context, saved);
  Tensor y = linear_proj_.Forward(context, saved.out, MemoryTag::kActivations, saved.linear_proj,
                                  residual);
  if (context.Recomputes(RecomputeModule::kCoreAttn)) {
    saved.out = {};
    saved.log_sum_exp = {};
    saved.linear_proj = {};
  }
  return y;
}

Tensor CoreAttention::Project(const LayerContext& context, const Tensor& out,
                              const Tensor& residual) const {
  LinearSaved saved;
  return linear_proj_.Forward(context, out, MemoryTag::kActivations, saved, residual);
}

Tensor CoreAttention::Backward(const LayerContext& context, CoreAttentionSaved& saved,
                               LinearOperand dy, bool accumulate) const {
  if (!saved.out.defined()) {
    const RecomputePass recompute(context.device);
    Attend(context, saved);
    linear_proj_.Keep(context, saved.out, saved.linear_proj);
  }
  const AttentionShape shape = ShapeOf(context);
  Tensor dqkv = context.New(saved.qkv.shape(), MemoryTag::kWorkspace);
  const Tensor dout = linear_proj_.Backward(context, saved.linear_proj, std::move(dy), accumulate);
  if (sinks_ != nullptr && sinks_->spec.trainable) {
    AttentionSinkBackward(shape, sinks_->weight, saved.out, saved.log_sum_exp, dout,
                          sinks_->gradient, accumulate);
  }
  if (context.parallel.layout.cp > 1) {
    ContextAttentionBackward(context, shape, saved.qkv, saved.out, saved.log_sum_exp, dout, dqkv);
  } else {
    AttentionBackward(shape, saved.qkv, saved.out, saved.log_sum_exp, dout, dqkv);
  }
  return dqkv;
}

}  // namespace trimtab
