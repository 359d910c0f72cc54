#include "engine/layers/lm_head.h"

#include <utility>

#include "engine/layers/blocks/recompute.h"
#include "engine/ops/elementwise/elementwise.h"
#include "engine/ops/gemm/gemm.h"
#include "engine/ops/vocabulary/cross_entropy.h"

namespace trimtab {

namespace {

/// The table that the head shares with the embedding; nullptr without one.
Parameter* TiedTable(ParameterStore& store, const LayerContext& context, const HeadSpec& spec,
                     const Embedding* embedding) {
  if (!spec.tied) return nullptr;
  if (embedding != nullptr) return &embedding->token_table();
  return &DeclareVocabTable(store.BeginUnit(), context, kTokenTable, spec.table,
                            VocabTable::kOutputDuplicate);
}

SoftCap SoftCapOf(const HeadSpec& spec) {
  return {.scale = static_cast<float>(spec.logit_scale),
          .cap = static_cast<float>(spec.logit_soft_cap)};
}

/// The layers before the table, in models that have them.
std::optional<Norm> FinalNorm(ParameterStore& store, const HeadSpec& spec) {
  if (!spec.norm) return std::nullopt;
  return std::optional<Norm>(std::in_place, store, "decoder.final_layernorm", *spec.norm,
                             spec.hidden_size);
}
std::optional<ReplicatedLinear> Projection(ParameterStore& store, const HeadSpec& spec) {
  if (!spec.narrow()) return std::nullopt;
  return std::optional<ReplicatedLinear>(std::in_place, store, "decoder.project_out.weight",
                                         /*bias_name=*/"", spec.hidden_size, spec.table.width,
                                         spec.table.init_std);
}

/// One element per row of the vocabulary's table `table`.
Parameter& DeclareOutputBias(ParameterStore& store, const Parameter& table) {
  Partition partition = table.spec.partition;
  partition.full_columns = 1;
  return store.Declare({.name = "output_layer.bias",
                        .rows = table.spec.rows,
                        .is_matrix = false,
                        .partition = partition});
}

}  // namespace

LmHead::LmHead(ParameterStore& store, const LayerContext& context, const HeadSpec& spec,
               const Embedding* embedding)
    : LmHead(store, context, spec, TiedTable(store, context, spec, embedding)) {}

LmHead::LmHead(ParameterStore& store, const LayerContext& context, const HeadSpec& spec,
               Parameter* tied)
    : spec_(spec),
      final_norm_(FinalNorm(store.BeginUnit(), spec)),
      projection_(Projection(store, spec)),
      output_layer_(tied != nullptr ? *tied
                                    : DeclareVocabTable(store, context, "output_layer.weight",
                                                        spec.table, VocabTable::kOutput)),
      vocab_start_(context.parallel.tp_rank * output_layer_.weight().spec.rows) {
  if (tied != nullptr) store.AlsoUse(*tied);
  if (spec.bias) bias_ = &DeclareOutputBias(store, output_layer_.weight());
}

LinearOperand LmHead::Normed(const LayerContext& context, const Tensor& x,
                             LmHeadSaved& saved) const {
  LinearOperand normed = final_norm_ ? final_norm_->Forward(context, x, saved.norm) : x;
  if (!projection_) return normed;
  saved.wide = normed.matrix;
  return projection_->Forward(context, saved.wide, MemoryTag::kActivations,
                              context.types.activations);
}

Tensor LmHead::Logits(const LayerContext& context, LinearOperand normed, LinearSaved& saved) const {
  Tensor logits = output_layer_.Forward(context, std::move(normed), MemoryTag::kActivations, saved);
  if (bias_ != nullptr) AddBias(bias_->weight, logits);
  const SoftCap soft_cap = SoftCapOf(spec_);
  if (!soft_cap.identity()) ApplySoftCap(soft_cap, logits);
  return logits;
}

Tensor LmHead::Logits(const LayerContext& context, const Tensor& x) const {
  LmHeadSaved saved;
  return Logits(context, Normed(context, x, saved), saved.output_layer);
}

Tensor LmHead::States(const LayerContext& context, const Tensor& x) const {
  if (!final_norm_) return x;
  NormSaved saved;
  return final_norm_->Forward(context, x, saved).matrix;
}

Tensor LmHead::Losses(const LayerContext& context, LinearOperand normed, LmHeadSaved& saved,
                      Tensor* logits) const {
  const int64_t tokens = context.tokens();
  saved.dlogits = Logits(context, std::move(normed), saved.output_layer);
  if (logits != nullptr) {
    *logits = context.New(saved.dlogits.shape(), MemoryTag::kWorkspace);
    Copy(saved.dlogits, *logits);
  }

  Tensor losses = context.NewF32({tokens}, MemoryTag::kWorkspace);
  const SoftCap soft_cap = SoftCapOf(spec_);
  if (context.tp() == 1) {
    CrossEntropy(saved.targets, spec_.table.vocab_size, saved.gradient_scale, saved.dlogits, losses,
                 soft_cap);
    return losses;
  }
  const VocabShard shard = {.start = vocab_start_, .valid = spec_.table.vocab_size};
  Tensor own = context.NewF32({3, tokens}, MemoryTag::kWorkspace);
  Tensor parts = context.NewF32({context.tp(), 3, tokens}, MemoryTag::kWorkspace);
  CrossEntropyParts(saved.dlogits, saved.targets, shard, own);
  context.parallel.tp->AllGather(own, parts);
  CrossEntropyGrad(saved.targets, shard, parts, saved.gradient_scale, saved.dlogits, losses,
                   soft_cap);
  return losses;
}

void LmHead::Forward(const LayerContext& context, const Tensor& x, const Tensor& targets,
                     const Tensor& gradient_scale, Tensor& loss_sum, LmHeadSaved& saved,
                     Tensor* logits) const {
  saved.targets = targets;
  saved.gradient_scale = gradient_scale;
  Sum(Losses(context, Normed(context, x, saved), saved, logits), loss_sum, /*accumulate=*/true);
  if (context.Recomputes(RecomputeModule::kLogits)) saved.dlogits = {};
}

Tensor LmHead::Backward(const LayerContext& context, const Tensor& x, LmHeadSaved& saved,
                        bool accumulate) const {
  if (!saved.dlogits.defined()) {
    const RecomputePass recompute(context.device);
    Losses(context, saved.output_layer.input, saved, /*logits=*/nullptr);
  }
  if (bias_ != nullptr && bias_->spec.trainable) {
    BiasBackward(saved.dlogits, bias_->gradient, accumulate);
  }
  Tensor dhidden = output_layer_.Backward(context, saved.output_layer, saved.dlogits, accumulate);
  const auto zeros = [&] {
    Tensor tensor = context.New(x.shape(), MemoryTag::kWorkspace);
    Fill(tensor, 0.0f);
    return tensor;
  };
  if (projection_) {
    Tensor dwide = zeros();
    projection_->Backward(context, saved.wide, dhidden, dwide, accumulate);
    dhidden = std::move(dwide);
  }
  if (!final_norm_) return dhidden;
  Tensor dx = zeros();
  final_norm_->Backward(context, x, saved.norm, dhidden, dx, accumulate);
  return dx;
}

}  // namespace trimtab
