#include "engine/layers/attention.h"

#include <utility>

#include "engine/layers/norm.h"
#include "engine/ops/elementwise.h"
#include "engine/ops/fused_fp8.h"
#include "engine/ops/head_norm.h"

namespace trimtab {
namespace {

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

/// The value of `tensor`, which gets new memory.
Tensor SetAside(const LayerContext& context, Tensor& tensor) {
  return std::exchange(tensor, context.New(tensor.shape(), MemoryTag::kActivations));
}

float ClipOf(const LayerContext& context) { return static_cast<float>(context.model.qkv_clip); }

}  // namespace

SelfAttention::SelfAttention(ParameterStore& store, const LayerContext& context,
                             const ModuleName& name, const LayerKind& kind)
    : linear_qkv_(
          store, context, name + ".linear_qkv", context.model.hidden_size,
          {context.model.attention_size(), context.model.num_kv_heads * context.model.head_size(),
           context.model.num_kv_heads * context.model.head_size()},
          context.model.has_qkv_bias(), context.model.kv_copies(context.tp())),
      core_(store, context, name, kind) {
  if (!context.model.query_key_norm) return;
  query_norm_ = &DeclareHeadNorm(store, context.model, name + ".q_layernorm");
  key_norm_ = &DeclareHeadNorm(store, context.model, name + ".k_layernorm");
}

void SelfAttention::HeadNormsForward(const LayerContext& context, SelfAttentionSaved& saved) const {
  const AttentionShape shape = core_.ShapeOf(context);
  saved.unnormed = SetAside(context, saved.core.qkv);
  saved.head_rstd =
      context.NewF32({shape.tokens(), shape.heads + shape.kv_heads}, MemoryTag::kActivations);
  HeadNormForward(shape, saved.unnormed, query_norm_->weight, key_norm_->weight,
                  NormOptionsOf(context.model), saved.core.qkv, saved.head_rstd);
}

void SelfAttention::HeadNormsBackward(const LayerContext& context, const SelfAttentionSaved& saved,
                                      Tensor& dqkv, bool accumulate) const {
  const int64_t head_size = context.model.head_size();
  Tensor dweights = Tensor::Empty(context.device, {2, head_size}, query_norm_->gradient.dtype(),
                                  MemoryTag::kWorkspace);
  HeadNormBackward(core_.ShapeOf(context), saved.unnormed, query_norm_->weight, key_norm_->weight,
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

Tensor SelfAttention::Forward(const LayerContext& context, LinearOperand x,
                              SelfAttentionSaved& saved, const Tensor& residual) const {
  Tensor& qkv = saved.core.qkv;
  qkv = linear_qkv_.Forward(context, std::move(x), MemoryTag::kActivations, saved.linear_qkv);
  if (ClipOf(context) > 0) {
    saved.projected = SetAside(context, qkv);
    Clamp(saved.projected, ClipOf(context), qkv);
  }
  if (query_norm_ != nullptr) HeadNormsForward(context, saved);
  if (context.model.position == PositionKind::kRope) {
    Rope(core_.ShapeOf(context), RotaryOf(context.model), /*inverse=*/false, qkv);
  }
  return core_.Forward(context, saved.core, residual);
}

bool SelfAttention::TurnsIntoFp8(const LayerContext& context) const {
  return context.model.position == PositionKind::kRope &&
         2 * RotaryOf(context.model).pairs(context.model.head_size()) <= kMaxRopeFp8Dims &&
         query_norm_ == nullptr && ClipOf(context) == 0 && linear_qkv_.bias() == nullptr;
}

Tensor SelfAttention::Backward(const LayerContext& context, SelfAttentionSaved& saved,
                               LinearOperand dy, bool accumulate) const {
  Tensor dqkv = core_.Backward(context, saved.core, std::move(dy), accumulate);
  if (std::optional<Fp8Target> target =
          TurnsIntoFp8(context) ? linear_qkv_.GradientTarget(context) : std::nullopt) {
    context.fp8->Write(
        context.parallel, *target, [&](const Tensor& scale, Fp8Output& out, bool /*rehearsal*/) {
          RopeBackwardFp8(core_.ShapeOf(context), RotaryOf(context.model), dqkv, scale, out);
        });
    dqkv = {};
    return linear_qkv_.Backward(context, saved.linear_qkv, std::move(target->out), accumulate);
  }
  if (context.model.position == PositionKind::kRope) {
    Rope(core_.ShapeOf(context), RotaryOf(context.model), /*inverse=*/true, dqkv);
  }
  if (query_norm_ != nullptr) HeadNormsBackward(context, saved, dqkv, accumulate);
  if (ClipOf(context) > 0) ClampBackward(saved.projected, ClipOf(context), dqkv);
  return linear_qkv_.Backward(context, saved.linear_qkv, dqkv, accumulate);
}

}  // namespace trimtab
