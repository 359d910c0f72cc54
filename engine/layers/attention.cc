#include "engine/layers/attention.h"

#include <cmath>
#include <utility>

#include "engine/layers/context_parallel.h"
#include "engine/layers/recompute.h"

namespace trimtab {
namespace {

AttentionShape ShapeOf(const LayerContext& context) {
  const ModelConfig& model = context.model;
  return {.batch = context.micro_batch,
          .sequence = context.positions().sequence,
          .heads = model.num_heads / context.tp(),
          .kv_heads = model.num_kv_heads / context.tp(),
          .head_size = model.head_size()};
}

/// GPT-2's rule: projections back into the residual stream start smaller by sqrt(2 L).
double ResidualStd(const ModelConfig& model) {
  return model.init_std / std::sqrt(2.0 * static_cast<double>(model.num_layers));
}

}  // namespace

SelfAttention::SelfAttention(ParameterStore& store, const LayerContext& context,
                             const std::string& name)
    : linear_qkv_(
          store, context, name + ".linear_qkv", context.model.hidden_size,
          {context.model.attention_size(), context.model.num_kv_heads * context.model.head_size(),
           context.model.num_kv_heads * context.model.head_size()},
          context.model.has_qkv_bias()),
      linear_proj_(store, context, name + ".linear_proj", context.model.attention_size(),
                   context.model.hidden_size, context.model.bias, ResidualStd(context.model)) {}

void SelfAttention::ForwardCore(const LayerContext& context, SelfAttentionSaved& saved) const {
  const AttentionShape shape = ShapeOf(context);
  saved.out = context.New({shape.tokens(), shape.heads * shape.head_size}, MemoryTag::kActivations);
  saved.log_sum_exp =
      context.NewF32({shape.batch, shape.heads, shape.sequence}, MemoryTag::kActivations);
  if (context.parallel.layout.cp > 1) {
    ContextAttentionForward(context, shape, saved.qkv, saved.out, saved.log_sum_exp);
  } else {
    AttentionForward(shape, saved.qkv, saved.out, saved.log_sum_exp);
  }
}

Tensor SelfAttention::Forward(const LayerContext& context, LinearOperand x,
                              SelfAttentionSaved& saved) const {
  saved.qkv = linear_qkv_.Forward(context, std::move(x), MemoryTag::kActivations, saved.linear_qkv);
  if (context.model.position == PositionKind::kRope) {
    Rope(ShapeOf(context), context.positions(), context.model.rope_theta, /*inverse=*/false,
         saved.qkv);
  }
  ForwardCore(context, saved);
  Tensor y = linear_proj_.Forward(context, saved.out, MemoryTag::kActivations, saved.linear_proj);
  if (context.Recomputes(RecomputeModule::kCoreAttn)) {
    saved.out = {};
    saved.log_sum_exp = {};
    saved.linear_proj = {};
  }
  return y;
}

Tensor SelfAttention::Backward(const LayerContext& context, SelfAttentionSaved& saved,
                               const Tensor& dy, bool accumulate) const {
  if (!saved.out.defined()) {
    const RecomputePass recompute(context.device);
    ForwardCore(context, saved);
    linear_proj_.Keep(context, saved.out, saved.linear_proj);
  }
  const AttentionShape shape = ShapeOf(context);
  Tensor dqkv = context.New(saved.qkv.shape(), MemoryTag::kWorkspace);
  {
    const Tensor dout = linear_proj_.Backward(context, saved.linear_proj, dy, accumulate);
    if (context.parallel.layout.cp > 1) {
      ContextAttentionBackward(context, shape, saved.qkv, saved.out, saved.log_sum_exp, dout, dqkv);
    } else {
      AttentionBackward(shape, saved.qkv, saved.out, saved.log_sum_exp, dout, dqkv);
    }
  }
  if (context.model.position == PositionKind::kRope) {
    Rope(shape, context.positions(), context.model.rope_theta, /*inverse=*/true, dqkv);
  }
  return linear_qkv_.Backward(context, saved.linear_qkv, dqkv, accumulate);
}

}  // namespace trimtab
