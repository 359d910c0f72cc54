#include "engine/layers/core_attention.h"

#include <cmath>
#include <utility>

#include "engine/layers/context_parallel.h"
#include "engine/layers/recompute.h"
#include "engine/ops/attention_sink.h"

namespace trimtab {
namespace {

/// GPT-2's rule: projections back into the residual stream start smaller by sqrt(2 L).
double ResidualStd(const ModelConfig& model) {
  return model.init_std / std::sqrt(2.0 * static_cast<double>(model.num_layers));
}

}  // namespace

Rotary RotaryOf(const ModelConfig& model) {
  Rotary rotary(model.rope_theta);
  rotary.dims = model.rotary_size();
  rotary.interleaved = model.rotary_interleaved;
  rotary.scaling = model.rope_scaling;
  return rotary;
}

CoreAttention::CoreAttention(ParameterStore& store, const LayerContext& context,
                             const ModuleName& name, const LayerKind& kind)
    : kind_(kind),
      linear_proj_(store, context, name + ".linear_proj", context.model.attention_size(),
                   context.model.hidden_size, context.model.bias, ResidualStd(context.model)) {
  const int64_t heads = context.model.num_heads;
  if (!context.model.attention_sinks) return;
  sinks_ = &store.Declare(
      {.name = name + ".softmax_offset",
       .rows = heads / context.tp(),
       .is_matrix = false,
       .partition = RowBlocksPartition({heads}, 1, context.tp(), context.parallel.tp_rank)});
}

AttentionShape CoreAttention::ShapeOf(const LayerContext& context) const {
  const ModelConfig& model = context.model;
  const int64_t heads = model.num_heads / context.tp();
  AttentionShape shape = {.rows = context.row_layout(),
                          .heads = heads,
                          .kv_heads = model.kv_heads_of_rank(context.tp()),
                          .head_size = model.head_size(),
                          .scores = {.scale = model.attention_scale,
                                     .soft_cap = model.attention_soft_cap,
                                     .window = kind_.sliding_window},
                          .value_head_size = model.value_size()};
  if (context.masks_documents()) {
    // Blocks of context parallelism count what a window hides.
    const int64_t window = context.parallel.layout.cp > 1 ? 0 : shape.scores.window;
    shape.visible_share = context.packing->VisibleShare(context.sequence, window);
  }
  if (model.position == PositionKind::kAlibi) {
    shape.scores.alibi_heads = model.num_heads;
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
  if (sinks_ != nullptr) {
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
