#include "engine/layers/moe/moe_router.h"

#include "engine/layers/linear/linear.h"
#include "engine/ops/elementwise/elementwise.h"
#include "engine/ops/moe/router.h"
#include "engine/ops/moe/sequence_routing.h"

namespace trimtab {
namespace {

SequenceRows SequencesOf(const LayerContext& context) {
  return {context.micro_batch, context.sequence, context.parallel.layout.cp};
}

/// `own` [N, ...] of all context-parallel ranks, one after the other.
Tensor GatherSequences(const LayerContext& context, const Tensor& own) {
  const int64_t ranks = context.parallel.layout.cp;
  if (ranks == 1) return own;
  Tensor all = Tensor::Empty(context.device, {ranks * own.dim(0), own.dim(1)}, own.dtype(),
                             MemoryTag::kWorkspace);
  context.parallel.cp->AllGather(own, all);
  return all;
}

/// The rows of this rank among those of all context-parallel ranks.
Tensor OwnRows(const LayerContext& context, const Tensor& all) {
  return all.Rows(context.parallel.cp_rank * context.tokens(), context.tokens());
}

Tensor NewChoice(const LayerContext& context, int64_t rows, int64_t topk) {
  return Tensor::Empty(context.device, {rows, topk}, DType::kI32, MemoryTag::kActivations);
}

/// What the load-balancing loss counts: the experts of the highest scores, as if no group or bias
/// had been in the way (DeepSeek-V3, arXiv:2412.19437, equation 18; Megatron-Core alike).
RouterOptions ByScoresAlone(const MoeConfig& moe) {
  RouterOptions options = RouterOptionsOf(moe);
  options.num_groups = options.group_topk = 1;
  options.group_score = GroupScore::kMax;
  return options;
}

}  // namespace

MoeRouter::MoeRouter(ParameterStore& store, const ModuleName& name, const MoeSpec& spec)
    : moe_(spec.moe),
      linear_(store, name + ".weight", moe_.router_bias ? name + ".bias" : ModuleName(),
              spec.expert.hidden_size, moe_.num_experts, spec.expert.init_std),
      load_(&store.buffers().Declare(name + ".load", BufferKind::kStatistic, moe_.num_experts)),
      losses_(&store.buffers().Declare(name + ".losses", BufferKind::kStatistic, 2)) {
  if (!moe_.expert_bias) return;
  expert_bias_ =
      &store.buffers().Declare(name + ".expert_bias", BufferKind::kState, moe_.num_experts);
}

Tensor MoeRouter::Forward(const LayerContext& context, const Tensor& x,
                          MoeRouterSaved& saved) const {
  saved.input = x;
  const bool gather = context.sequence_parallel();
  Tensor logits =
      linear_.Forward(context, x, gather ? MemoryTag::kWorkspace : MemoryTag::kActivations);
  const SoftCap soft_cap = RouterOptionsOf(moe_).soft_cap;
  if (!soft_cap.identity()) ApplySoftCap(soft_cap, logits);
  saved.logits = logits;
  if (gather) {
    saved.logits = context.NewF32({context.tokens(), moe_.num_experts}, MemoryTag::kActivations);
    context.parallel.tp->AllGather(logits, saved.logits);
  }
  Choose(context, saved);
  saved.weights = context.NewF32({context.tokens(), moe_.router_topk}, MemoryTag::kActivations);
  RouterWeights(saved.logits, saved.choice, RouterOptionsOf(moe_), saved.weights);
  return Keep(context, saved);
}

void MoeRouter::Choose(const LayerContext& context, MoeRouterSaved& saved) const {
  if (moe_.router == RouterKind::kSinkhorn && !context.routing.force_balance) {
    const SequenceRows sequences = SequencesOf(context);
    Tensor choice = NewChoice(context, sequences.rows(), 1);
    SinkhornChoose(sequences, GatherSequences(context, saved.logits), choice);
    saved.choice = OwnRows(context, choice);
    return;
  }
  saved.choice = NewChoice(context, context.tokens(), moe_.router_topk);
  if (context.routing.force_balance) {
    RouterChooseInTurn(
        context.paged != nullptr ? context.row_layout() : context.row_layout().WithoutDocuments(),
        moe_.num_experts, saved.choice);
  } else {
    const Tensor bias = expert_bias_ != nullptr ? expert_bias_->values : Tensor();
    RouterChoose(saved.logits, bias, RouterOptionsOf(moe_), saved.choice);
  }
}

Tensor MoeRouter::Keep(const LayerContext& context, const MoeRouterSaved& saved) const {
  if (moe_.capacity_factor == 0) return saved.choice;
  const SequenceRows sequences = SequencesOf(context);
  Tensor kept = Tensor::Empty(context.device, {sequences.rows(), moe_.router_topk}, DType::kI32,
                              MemoryTag::kWorkspace);
  DropTokens(sequences, moe_.num_experts, moe_.capacity(context.sequence), moe_.drop_policy,
             GatherSequences(context, saved.choice), GatherSequences(context, saved.weights), kept);
  return OwnRows(context, kept);
}

void MoeRouter::Backward(const LayerContext& context, const MoeRouterSaved& saved,
                         const Tensor& dweights, Tensor& dx, bool accumulate) const {
  Tensor load = load_->values.Reshape({1, load_->numel});
  CountChoices(saved.choice, load, /*accumulate=*/true);
  const auto own = [&context](const Tensor& all) {
    return all.Rows(context.row_begin(), context.rows());
  };
  Tensor dlogits = context.NewF32(saved.logits.shape(), MemoryTag::kWorkspace);
  // The losses are made of all rows; those of other ranks add nothing here.
  if (context.rows() < dlogits.dim(0)) Fill(dlogits, 0.0f);
  Tensor dlogits_own = own(dlogits);
  RouterWeightsBackward(own(saved.logits), own(saved.choice), dweights, RouterOptionsOf(moe_),
                        dlogits_own);
  LossesBackward(context, saved, dlogits);
  linear_.Backward(context, saved.input, dlogits_own, dx, accumulate);
}

void MoeRouter::LossesBackward(const LayerContext& context, const MoeRouterSaved& saved,
                               Tensor& dlogits) const {
  if (moe_.aux_loss_coeff == 0 && moe_.z_loss_coeff == 0) return;
  Tensor choice = saved.choice;
  if (expert_bias_ != nullptr || moe_.group_topk < moe_.num_groups) {
    choice = Tensor::Empty(context.device, choice.shape(), DType::kI32, MemoryTag::kWorkspace);
    RouterChoose(saved.logits, /*bias=*/{}, ByScoresAlone(moe_), choice);
  }
  Tensor load = context.NewF32({context.micro_batch, moe_.num_experts}, MemoryTag::kWorkspace);
  CountChoices(choice, load, /*accumulate=*/false);
  if (context.parallel.layout.cp > 1) context.parallel.cp->AllReduce(load);
  const double choices = static_cast<double>(moe_.router_topk * context.sequence);
  const double aux_factor = moe_.aux_loss_coeff * static_cast<double>(moe_.num_experts) / choices;
  Tensor losses = context.NewF32({2, context.tokens()}, MemoryTag::kWorkspace);
  RouterLossBackward(saved.logits, load,
                     {.score = moe_.score,
                      .aux_factor = static_cast<float>(aux_factor),
                      .z_coeff = static_cast<float>(moe_.z_loss_coeff),
                      .soft_cap = RouterOptionsOf(moe_).soft_cap},
                     context.gradient_scale, dlogits, losses);
  for (int64_t i = 0; i < 2; ++i) {
    Tensor sum = losses_->Part(i, 1);
    Sum(losses.Slice(i * context.tokens(), {context.tokens()}), sum, /*accumulate=*/true);
  }
}

void MoeRouter::EndStep() const {
  if (expert_bias_ == nullptr) return;
  UpdateExpertBias(load_->values, static_cast<float>(moe_.bias_update_rate), expert_bias_->values);
}

}  // namespace trimtab
