#include "engine/layers/attention/attention.h"

#include <utility>

#include "engine/ops/elementwise/elementwise.h"
#include "engine/ops/fp8/fused_fp8.h"

namespace trimtab {

SelfAttention::SelfAttention(ParameterStore& store, const LayerContext& context,
                             const ModuleName& name, const AttentionSpec& spec)
    : linear_qkv_(store, context, name + ".linear_qkv", spec.hidden_size,
                  {spec.out_size(), spec.kv_heads * spec.head_size, spec.kv_heads * spec.head_size},
                  spec.qkv_bias, spec.init_std, spec.kv_copies(context.tp())),
      core_(store, context, name, spec) {
  if (spec.query_key_norm != QueryKeyNorm::kNone) norms_.emplace(store, name, spec);
}

Tensor SelfAttention::Forward(const LayerContext& context, LinearOperand x,
                              SelfAttentionSaved& saved, const Tensor& residual) const {
  Tensor& qkv = saved.core.qkv;
  qkv = linear_qkv_.Forward(context, std::move(x), MemoryTag::kActivations, saved.linear_qkv);
  if (clip() > 0) {
    saved.projected = std::exchange(qkv, context.New(qkv.shape(), MemoryTag::kActivations));
    Clamp(saved.projected, clip(), qkv);
  }
  if (norms_) norms_->Forward(context, core_.ShapeOf(context), qkv, saved.norms);
  if (spec().rotary) {
    Rope(core_.ShapeOf(context), *spec().rotary, /*inverse=*/false, qkv);
  }
  return core_.Forward(context, saved.core, residual);
}

bool SelfAttention::TurnsIntoFp8() const {
  return spec().rotary && 2 * spec().rotary->pairs(spec().head_size) <= kMaxRopeFp8Dims &&
         !norms_ && clip() == 0 && linear_qkv_.bias() == nullptr;
}

Tensor SelfAttention::Backward(const LayerContext& context, SelfAttentionSaved& saved,
                               LinearOperand dy, bool accumulate) const {
  Tensor dqkv = core_.Backward(context, saved.core, std::move(dy), accumulate);
  if (std::optional<Fp8Target> target =
          TurnsIntoFp8() ? linear_qkv_.GradientTarget(context) : std::nullopt) {
    context.fp8->Write(context.parallel, *target,
                       [&](const Tensor& scale, Fp8Output& out, bool /*rehearsal*/) {
                         RopeBackwardFp8(core_.ShapeOf(context), *spec().rotary, dqkv, scale, out);
                       });
    dqkv = {};
    return linear_qkv_.Backward(context, saved.linear_qkv, std::move(target->out), accumulate);
  }
  if (spec().rotary) {
    Rope(core_.ShapeOf(context), *spec().rotary, /*inverse=*/true, dqkv);
  }
  if (norms_) {
    norms_->Backward(context, core_.ShapeOf(context), saved.norms, dqkv, accumulate);
  }
  if (clip() > 0) ClampBackward(saved.projected, clip(), dqkv);
  return linear_qkv_.Backward(context, saved.linear_qkv, dqkv, accumulate);
}

}  // namespace trimtab
