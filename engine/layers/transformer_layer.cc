#include "engine/layers/transformer_layer.h"

#include <utility>

#include "engine/layers/recompute.h"
#include "engine/ops/elementwise.h"

namespace trimtab {
namespace {

std::optional<Norm> NormIf(bool has_one, ParameterStore& store, const LayerContext& context,
                           const std::string& name) {
  return has_one ? std::optional<Norm>(std::in_place, store, context, name) : std::nullopt;
}

/// x + norm(branch), or x + branch without a norm; in the memory of the branch if it can be.
Tensor AddBranch(const LayerContext& context, const std::optional<Norm>& norm, const Tensor& x,
                 Tensor branch, PostNormSaved& saved) {
  if (norm) {
    saved.input = std::move(branch);
    branch = norm->Forward(context, saved.input, saved.norm).matrix;
  }
  Add(x, branch);
  return branch;
}

/// The gradient of the branch from that of the sum.
Tensor BranchGradient(const LayerContext& context, const std::optional<Norm>& norm,
                      const PostNormSaved& saved, const Tensor& dy, bool accumulate) {
  if (!norm) return dy;
  Tensor dbranch = context.New(dy.shape(), MemoryTag::kWorkspace);
  Fill(dbranch, 0.0f);
  norm->Backward(context, saved.input, saved.norm, dy, dbranch, accumulate);
  return dbranch;
}

}  // namespace

std::string TransformerLayer::NameOf(int64_t number) {
  return "decoder.layers." + std::to_string(number);
}

TransformerLayer::TransformerLayer(ParameterStore& store, const LayerContext& context,
                                   int64_t number)
    : TransformerLayer(store, context, NameOf(number), context.model.layer_kind(number)) {}

TransformerLayer::TransformerLayer(ParameterStore& store, const LayerContext& context,
                                   const std::string& name, const LayerKind& kind)
    : block_(context.model.block),
      input_norm_(store, context, name + ".input_layernorm"),
      attention_(store, context, name + ".self_attention", kind),
      post_attention_norm_(NormIf(block_ == BlockKind::kSandwich, store, context,
                                  name + ".post_attention_layernorm")),
      mlp_norm_(NormIf(block_ != BlockKind::kParallelShared, store, context,
                       name + ".pre_mlp_layernorm")) {
  if (kind.moe) {
    moe_.emplace(store, context, name + ".mlp");
  } else {
    mlp_.emplace(store, context, name + ".mlp", context.model.ffn_hidden_size);
  }
  post_mlp_norm_ =
      NormIf(block_ == BlockKind::kSandwich, store, context, name + ".post_mlp_layernorm");
}

Tensor TransformerLayer::MlpForward(const LayerContext& context, LinearOperand x,
                                    TransformerLayerSaved& saved) const {
  return WithMlp(
      saved, [&](const auto& mlp, auto& kept) { return mlp.Forward(context, std::move(x), kept); });
}

Tensor TransformerLayer::MlpBackward(const LayerContext& context, TransformerLayerSaved& saved,
                                     const Tensor& dy, bool accumulate) const {
  return WithMlp(saved, [&](const auto& mlp, auto& kept) {
    return mlp.Backward(context, kept, dy, accumulate);
  });
}

LinearOperand TransformerLayer::AttentionInput(const LayerContext& context, const Tensor& x,
                                               TransformerLayerSaved& saved) const {
  // What two linear layers read is not written in the form that one of them wants.
  return input_norm_.Forward(context, x, saved.input_norm,
                             mlp_norm_ ? attention_.InputTarget(context) : std::nullopt);
}

LinearOperand TransformerLayer::MlpInput(const LayerContext& context, const Tensor& x,
                                         TransformerLayerSaved& saved) const {
  return mlp_norm_->Forward(context, MlpNormInput(x, saved), saved.mlp_norm,
                            mlp_ ? mlp_->InputTarget(context) : std::nullopt);
}

Tensor TransformerLayer::Forward(const LayerContext& context, const Tensor& x,
                                 TransformerLayerSaved& saved) const {
  if (parallel()) return ForwardInParallel(context, x, saved);
  Tensor attention =
      attention_.Forward(context, AttentionInput(context, x, saved), saved.attention);
  DropAttentionInput(context, saved);
  saved.middle =
      AddBranch(context, post_attention_norm_, x, std::move(attention), saved.post_attention);
  Tensor mlp = MlpForward(context, MlpInput(context, x, saved), saved);
  DropMlp(context, saved);
  return AddBranch(context, post_mlp_norm_, saved.middle, std::move(mlp), saved.post_mlp);
}

Tensor TransformerLayer::ForwardInParallel(const LayerContext& context, const Tensor& x,
                                           TransformerLayerSaved& saved) const {
  LinearOperand input = AttentionInput(context, x, saved);
  const Tensor attention = attention_.Forward(context, input, saved.attention);
  if (mlp_norm_) input = MlpInput(context, x, saved);
  Tensor y = MlpForward(context, std::move(input), saved);
  DropAttentionInput(context, saved);
  DropMlp(context, saved);
  Add(attention, y);
  Add(x, y);
  return y;
}

void TransformerLayer::DropAttentionInput(const LayerContext& context,
                                          TransformerLayerSaved& saved) {
  if (!context.Recomputes(RecomputeModule::kLayerNorm)) return;
  saved.input_norm = {};
  saved.attention.linear_qkv = {};
}

void TransformerLayer::DropMlp(const LayerContext& context, TransformerLayerSaved& saved) const {
  const bool all = context.Recomputes(RecomputeModule::kMlp);
  if (!all && !context.Recomputes(RecomputeModule::kLayerNorm)) return;
  saved.mlp_norm = {};
  WithMlp(saved, [all](const auto&, auto& kept) {
    if (all) {
      kept = {};
    } else {
      kept.DropInput();
    }
  });
}

void TransformerLayer::RecomputeAttentionInput(const LayerContext& context, const Tensor& x,
                                               TransformerLayerSaved& saved) const {
  if (saved.attention.linear_qkv.defined()) return;
  const RecomputePass recompute(context.device);
  attention_.RecomputeInput(context, AttentionInput(context, x, saved), saved.attention);
}

void TransformerLayer::RecomputeMlp(const LayerContext& context, const Tensor& x,
                                    TransformerLayerSaved& saved) const {
  WithMlp(saved, [&](const auto& mlp, auto& kept) {
    if (kept.has_input()) return;
    const RecomputePass recompute(context.device);
    if (mlp_norm_) return mlp.Recompute(context, MlpInput(context, x, saved), kept);
    const LinearOperand input = AttentionInput(context, x, saved);
    if (!saved.attention.linear_qkv.defined()) {
      attention_.RecomputeInput(context, input, saved.attention);
    }
    mlp.Recompute(context, input, kept);
  });
}

void TransformerLayer::Backward(const LayerContext& context, const Tensor& x,
                                TransformerLayerSaved& saved, Tensor& dx, bool accumulate) const {
  RecomputeMlp(context, x, saved);
  if (parallel()) return BackwardInParallel(context, x, saved, dx, accumulate);
  {
    const Tensor dmlp = MlpBackward(
        context, saved, BranchGradient(context, post_mlp_norm_, saved.post_mlp, dx, accumulate),
        accumulate);
    mlp_norm_->Backward(context, saved.middle, saved.mlp_norm, dmlp, dx, accumulate);
  }
  RecomputeAttentionInput(context, x, saved);
  const Tensor dattention = attention_.Backward(
      context, saved.attention,
      BranchGradient(context, post_attention_norm_, saved.post_attention, dx, accumulate),
      accumulate);
  input_norm_.Backward(context, x, saved.input_norm, dattention, dx, accumulate);
}

void TransformerLayer::BackwardInParallel(const LayerContext& context, const Tensor& x,
                                          TransformerLayerSaved& saved, Tensor& dx,
                                          bool accumulate) const {
  // Both read the gradient of the output before either adds to it.
  const Tensor dmlp = MlpBackward(context, saved, dx, accumulate);
  RecomputeAttentionInput(context, x, saved);
  Tensor dattention = attention_.Backward(context, saved.attention, dx, accumulate);
  if (mlp_norm_) {
    mlp_norm_->Backward(context, x, saved.mlp_norm, dmlp, dx, accumulate);
  } else {
    Add(dmlp, dattention);
  }
  input_norm_.Backward(context, x, saved.input_norm, dattention, dx, accumulate);
}

}  // namespace trimtab
