#include "engine/layers/transformer_layer.h"

#include <cmath>
#include <utility>

#include "engine/layers/recompute.h"
#include "engine/ops/elementwise.h"

namespace trimtab {
namespace {

/// A layer made of `arguments`, in models that have one.
template <typename Layer, typename... Arguments>
std::optional<Layer> IfAny(bool has_one, Arguments&&... arguments) {
  return has_one ? std::optional<Layer>(std::in_place, std::forward<Arguments>(arguments)...)
                 : std::nullopt;
}

}  // namespace

ModuleName TransformerLayer::NameOf(int64_t number) {
  return "decoder.layers." + ModuleName(std::to_string(number));
}

TransformerLayer::TransformerLayer(ParameterStore& store, const LayerContext& context,
                                   int64_t number)
    : TransformerLayer(store, context, NameOf(number), context.model.layer_kind(number)) {}

TransformerLayer::TransformerLayer(ParameterStore& store, const LayerContext& context,
                                   const ModuleName& name, const LayerKind& kind)
    : block_(context.model.block),
      stream_scale_(deep_norm() ? std::sqrt(2.0f * static_cast<float>(context.model.num_layers))
                                : 1.0f),
      input_norm_(IfAny<Norm>(!post_norm(), store, context, name + ".input_layernorm")),
      attention_(IfAny<SelfAttention>(!context.model.latent.used(), store, context,
                                      name + ".self_attention", kind)),
      latent_(IfAny<LatentAttention>(context.model.latent.used(), store, context,
                                     name + ".self_attention", kind)),
      post_attention_norm_(IfAny<Norm>(block_ == BlockKind::kSandwich || post_norm(), store,
                                       context, name + ".post_attention_layernorm")),
      mlp_norm_(IfAny<Norm>(block_ != BlockKind::kParallelShared && !post_norm(), store, context,
                            name + ".pre_mlp_layernorm")),
      post_mlp_norm_(IfAny<Norm>(block_ == BlockKind::kSandwich || post_norm(), store, context,
                                 name + ".post_mlp_layernorm")) {
  if (kind.moe) {
    moe_.emplace(store, context, name + ".mlp");
  } else {
    mlp_.emplace(store, context, name + ".mlp", context.model.ffn_hidden_size);
  }
}

LinearOperand TransformerLayer::AttentionInput(const LayerContext& context, const Tensor& x,
                                               TransformerLayerSaved& saved) const {
  if (!input_norm_) return x;
  // What others read too is not written in the form that the linear layer wants.
  return input_norm_->Forward(
      context, x, saved.input_norm,
      mlp_norm_ && !deep_norm() && attention_ ? attention_->InputTarget(context) : std::nullopt);
}

LinearOperand TransformerLayer::MlpInput(const LayerContext& context, const Tensor& x,
                                         TransformerLayerSaved& saved) const {
  if (mlp_norm_) {
    return mlp_norm_->Forward(context, MlpNormInput(x, saved), saved.mlp_norm,
                              mlp_ && !deep_norm() ? mlp_->InputTarget(context) : std::nullopt);
  }
  if (saved.middle.defined()) return saved.middle;
  PostNormSaved& attention = saved.post_attention;
  return post_attention_norm_->Forward(context, attention.input, attention.norm);
}

bool TransformerLayer::AddsStream(const std::optional<Norm>& norm) const {
  return stream_scale_ == 1.0f && (!norm || post_norm());
}

Tensor TransformerLayer::AddBranch(const LayerContext& context, const std::optional<Norm>& norm,
                                   const Tensor& x, Tensor branch, PostNormSaved& saved) const {
  const auto normed = [&](Tensor input) {
    saved.input = std::move(input);
    return norm->Forward(context, saved.input, saved.norm).matrix;
  };
  if (norm && !post_norm()) branch = normed(std::move(branch));
  if (stream_scale_ != 1.0f) {
    Tensor scaled = context.New(x.shape(), MemoryTag::kWorkspace);
    Copy(x, scaled);
    ApplySoftCap({.scale = stream_scale_}, scaled);
    Add(scaled, branch);
  } else if (!AddsStream(norm)) {
    Add(x, branch);
  }
  return post_norm() ? normed(std::move(branch)) : branch;
}

Tensor TransformerLayer::BranchGradient(const LayerContext& context,
                                        const std::optional<Norm>& norm, const PostNormSaved& saved,
                                        Tensor& dx, bool accumulate) const {
  if (!norm) return dx;
  Tensor dinput = context.New(dx.shape(), MemoryTag::kWorkspace);
  Fill(dinput, 0.0f);
  norm->Backward(context, saved.input, saved.norm, dx, dinput, accumulate);
  if (post_norm()) dx = dinput;
  return dinput;
}

Tensor TransformerLayer::Forward(const LayerContext& context, const Tensor& x,
                                 TransformerLayerSaved& saved) const {
  if (parallel()) return ForwardInParallel(context, x, saved);
  LinearOperand input = AttentionInput(context, x, saved);
  Tensor stream = deep_norm() ? input.matrix : x;
  Tensor attention = WithAttention(saved, [&](const auto& layer, auto& kept) {
    const bool adds = AddsStream(post_attention_norm_);
    return layer.Forward(context, std::move(input), kept, adds ? stream : Tensor());
  });
  DropAttentionInput(context, saved);
  saved.middle =
      AddBranch(context, post_attention_norm_, stream, std::move(attention), saved.post_attention);
  input = MlpInput(context, x, saved);
  stream = deep_norm() ? input.matrix : saved.middle;
  Tensor mlp = WithMlp(saved, [&](const auto& layer, auto& kept) {
    const bool adds = AddsStream(post_mlp_norm_);
    return layer.Forward(context, std::move(input), kept, adds ? stream : Tensor());
  });
  DropMlp(context, saved);
  if (post_norm()) saved.middle = {};
  return AddBranch(context, post_mlp_norm_, stream, std::move(mlp), saved.post_mlp);
}

void TransformerLayer::NormedGradient(const LayerContext& context, const Norm& norm,
                                      const Tensor& x, const NormSaved& saved,
                                      const Tensor& dbranch, Tensor& dx, bool accumulate) const {
  Tensor dnormed = context.New(dx.shape(), MemoryTag::kWorkspace);
  Copy(dx, dnormed);
  ApplySoftCap({.scale = stream_scale_}, dnormed);
  Add(dbranch, dnormed);
  Fill(dx, 0.0f);
  norm.Backward(context, x, saved, dnormed, dx, accumulate);
}

Tensor TransformerLayer::ForwardInParallel(const LayerContext& context, const Tensor& x,
                                           TransformerLayerSaved& saved) const {
  LinearOperand input = AttentionInput(context, x, saved);
  LinearOperand shared = mlp_norm_ ? LinearOperand() : input;
  const Tensor stream = WithAttention(saved, [&](const auto& layer, auto& kept) {
    return layer.Forward(context, std::move(input), kept, x);
  });
  input = mlp_norm_ ? MlpInput(context, x, saved) : std::move(shared);
  Tensor y = WithMlp(saved, [&](const auto& layer, auto& kept) {
    return layer.Forward(context, std::move(input), kept, stream);
  });
  DropAttentionInput(context, saved);
  DropMlp(context, saved);
  return y;
}

void TransformerLayer::DropAttentionInput(const LayerContext& context,
                                          TransformerLayerSaved& saved) const {
  if (!context.Recomputes(RecomputeModule::kLayerNorm)) return;
  saved.input_norm = {};
  WithAttention(saved, [](const auto&, auto& kept) { kept.DropInput(); });
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
  WithAttention(saved, [&](const auto& attention, auto& kept) {
    if (kept.has_input()) return;
    const RecomputePass recompute(context.device);
    attention.RecomputeInput(context, AttentionInput(context, x, saved), kept);
  });
}

void TransformerLayer::RecomputeMlp(const LayerContext& context, const Tensor& x,
                                    TransformerLayerSaved& saved) const {
  WithMlp(saved, [&](const auto& mlp, auto& kept) {
    if (kept.has_input()) return;
    const RecomputePass recompute(context.device);
    if (block_ != BlockKind::kParallelShared) {
      return mlp.Recompute(context, MlpInput(context, x, saved), kept);
    }
    const LinearOperand input = AttentionInput(context, x, saved);
    WithAttention(saved, [&](const auto& attention, auto& from) {
      if (!from.has_input()) attention.RecomputeInput(context, input, from);
    });
    mlp.Recompute(context, input, kept);
  });
}

std::optional<Fp8Target> TransformerLayer::MiddleTarget(const LayerContext& context) const {
  if (post_attention_norm_) return std::nullopt;
  return latent_ ? latent_->GradientTarget(context) : attention_->GradientTarget(context);
}

Tensor TransformerLayer::AttentionBackward(const LayerContext& context, LinearOperand dy,
                                           TransformerLayerSaved& saved, bool accumulate) const {
  return WithAttention(saved, [&](const auto& attention, auto& kept) {
    return attention.Backward(context, kept, std::move(dy), accumulate);
  });
}

Tensor TransformerLayer::MlpBackward(const LayerContext& context, const Tensor& dy,
                                     TransformerLayerSaved& saved, bool accumulate) const {
  return WithMlp(saved, [&](const auto& mlp, auto& kept) {
    return mlp.Backward(context, kept, dy, accumulate);
  });
}

void TransformerLayer::Backward(const LayerContext& context, const Tensor& x,
                                TransformerLayerSaved& saved, Tensor& dx, bool accumulate) const {
  RecomputeMlp(context, x, saved);
  if (parallel()) return BackwardInParallel(context, x, saved, dx, accumulate);
  LinearOperand dmiddle;
  {
    const Tensor dmlp = MlpBackward(
        context, BranchGradient(context, post_mlp_norm_, saved.post_mlp, dx, accumulate), saved,
        accumulate);
    if (deep_norm()) {
      NormedGradient(context, *mlp_norm_, saved.middle, saved.mlp_norm, dmlp, dx, accumulate);
    } else if (mlp_norm_) {
      dmiddle = mlp_norm_->Backward(context, saved.middle, saved.mlp_norm, dmlp, dx, accumulate,
                                    MiddleTarget(context));
    } else {
      Add(dmlp, dx);
    }
  }
  RecomputeAttentionInput(context, x, saved);
  if (!dmiddle.fp8.rows.defined()) {
    dmiddle = BranchGradient(context, post_attention_norm_, saved.post_attention, dx, accumulate);
  }
  const Tensor dattention = AttentionBackward(context, std::move(dmiddle), saved, accumulate);
  if (deep_norm()) {
    return NormedGradient(context, *input_norm_, x, saved.input_norm, dattention, dx, accumulate);
  }
  if (!input_norm_) return Add(dattention, dx);
  input_norm_->Backward(context, x, saved.input_norm, dattention, dx, accumulate);
}

void TransformerLayer::BackwardInParallel(const LayerContext& context, const Tensor& x,
                                          TransformerLayerSaved& saved, Tensor& dx,
                                          bool accumulate) const {
  // Both read the gradient of the output before either adds to it.
  const Tensor dmlp = MlpBackward(context, dx, saved, accumulate);
  RecomputeAttentionInput(context, x, saved);
  Tensor dattention = AttentionBackward(context, dx, saved, accumulate);
  if (mlp_norm_) {
    mlp_norm_->Backward(context, x, saved.mlp_norm, dmlp, dx, accumulate);
  } else {
    Add(dmlp, dattention);
  }
  input_norm_->Backward(context, x, saved.input_norm, dattention, dx, accumulate);
}

}  // namespace trimtab
