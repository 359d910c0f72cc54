#include "engine/layers/attention.h"

#include <cmath>
#include <utility>

#include "engine/layers/context_parallel.h"
#include "engine/layers/norm.h"
#include "engine/layers/recompute.h"
#include "engine/ops/elementwise.h"
#include "engine/ops/head_norm.h"

namespace trimtab {
namespace {

Rotary RotaryOf(const ModelConfig& model) {
  Rotary rotary(model.rope_theta);
  rotary.dims = model.rotary_size();
  rotary.interleaved = model.rotary_interleaved;
  rotary.scaling = model.rope_scaling;
  return rotary;
}

/// The weight of a norm over heads, the same on all ranks.
Parameter& DeclareHeadNorm(ParameterStore& store, const ModelConfig& model,
                           const ModuleName& name) {
  return store.Declare({.name = name + ".weight",
                        .rows = model.head_size(),
                        .is_matrix = false,
                        .tensor_parallel = false,
                        .init = NormWeightInit(model),
                        .partition = WholePartition(model.head_size(), 1)});
}

/// GPT-2's rule: projections back into the residual stream start smaller by sqrt(2 L).
double ResidualStd(const ModelConfig& model) {
  return model.init_std / std::sqrt(2.0 * static_cast<double>(model.num_layers));
}

}  // namespace

SelfAttention::SelfAttention(ParameterStore& store, const LayerContext& context,
                             const ModuleName& name, const LayerKind& kind)
    : kind_(kind),
      linear_qkv_(
          store, context, name + ".linear_qkv", context.model.hidden_size,
          {context.model.attention_size(), context.model.num_kv_heads * context.model.head_size(),
           context.model.num_kv_heads * context.model.head_size()},
          context.model.has_qkv_bias()),
      linear_proj_(store, context, name + ".linear_proj", context.model.attention_size(),
                   context.model.hidden_size, context.model.bias, ResidualStd(context.model)) {
  if (!context.model.query_key_norm) return;
  query_norm_ = &DeclareHeadNorm(store, context.model, name + ".q_layernorm");
  key_norm_ = &DeclareHeadNorm(store, context.model, name + ".k_layernorm");
}

AttentionShape SelfAttention::ShapeOf(const LayerContext& context) const {
  const ModelConfig& model = context.model;
  const int64_t heads = model.num_heads / context.tp();
  AttentionShape shape = {.batch = context.micro_batch,
                          .sequence = context.positions().sequence,
                          .heads = heads,
                          .kv_heads = model.num_kv_heads / context.tp(),
                          .head_size = model.head_size(),
                          .scores = {.scale = model.attention_scale,
                                     .soft_cap = model.attention_soft_cap,
                                     .window = kind_.sliding_window}};
  if (model.position == PositionKind::kAlibi) {
    shape.scores.alibi_heads = model.num_heads;
    shape.scores.alibi_first = context.parallel.tp_rank * heads;
  }
  return shape;
}

void SelfAttention::HeadNormsForward(const LayerContext& context, SelfAttentionSaved& saved) const {
  const AttentionShape shape = ShapeOf(context);
  saved.projected =
      std::exchange(saved.qkv, context.New(saved.qkv.shape(), MemoryTag::kActivations));
  saved.head_rstd =
      context.NewF32({shape.tokens(), shape.heads + shape.kv_heads}, MemoryTag::kActivations);
  HeadNormForward(shape, saved.projected, query_norm_->weight, key_norm_->weight,
                  NormOptionsOf(context.model), saved.qkv, saved.head_rstd);
}

void SelfAttention::HeadNormsBackward(const LayerContext& context, const SelfAttentionSaved& saved,
                                      Tensor& dqkv, bool accumulate) const {
  const int64_t head_size = context.model.head_size();
  Tensor dweights = Tensor::Empty(context.device, {2, head_size}, query_norm_->gradient.dtype(),
                                  MemoryTag::kWorkspace);
  HeadNormBackward(ShapeOf(context), saved.projected, query_norm_->weight, key_norm_->weight,
                   saved.head_rstd, context.model.norm_weight_plus_one, dqkv, dweights);
  // Each rank has seen its own heads. With sequence parallelism, what is the same on all ranks is
  // summed at the end of the step.
  if (context.tp() > 1 && !context.sequence_parallel()) context.parallel.tp->AllReduce(dweights);
  for (Parameter* norm : {query_norm_, key_norm_}) {
    const Tensor dweight = dweights.Slice(norm == query_norm_ ? 0 : head_size, {head_size});
    if (accumulate) {
      Add(dweight, norm->gradient);
    } else {
      Copy(dweight, norm->gradient);
    }
  }
}

void SelfAttention::ForwardCore(const LayerContext& context, SelfAttentionSaved& saved) const {
  const AttentionShape shape = ShapeOf(context);
  saved.out = context.New({shape.tokens(), shape.heads * shape.head_size}, MemoryTag::kActivations);
  if (context.paged != nullptr) {
    StoreKv(shape, *context.paged, saved.qkv, *context.cache);
    return PagedAttention(shape, *context.paged, saved.qkv, *context.cache, saved.out);
  }
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
  if (query_norm_ != nullptr) HeadNormsForward(context, saved);
  if (context.model.position == PositionKind::kRope) {
    Rope(ShapeOf(context), context.positions(), RotaryOf(context.model), /*inverse=*/false,
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
    Rope(shape, context.positions(), RotaryOf(context.model), /*inverse=*/true, dqkv);
  }
  if (query_norm_ != nullptr) HeadNormsBackward(context, saved, dqkv, accumulate);
  return linear_qkv_.Backward(context, saved.linear_qkv, dqkv, accumulate);
}

}  // namespace trimtab
