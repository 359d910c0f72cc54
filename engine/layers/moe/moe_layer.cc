#include "engine/layers/moe/moe_layer.h"

#include <utility>

#include "engine/layers/blocks/recompute.h"
#include "engine/ops/activation/gate_rows.h"
#include "engine/ops/elementwise/elementwise.h"

namespace trimtab {

namespace {

std::optional<Mlp> SharedExperts(ParameterStore& store, const LayerContext& context,
                                 const ModuleName& name, const MlpSpec& spec) {
  if (spec.ffn_hidden_size == 0) return std::nullopt;
  return std::optional<Mlp>(std::in_place, store, context, name, spec);
}

std::optional<ReplicatedLinear> SharedExpertGate(ParameterStore& store, const ModuleName& name,
                                                 const MoeSpec& spec) {
  if (spec.shared.ffn_hidden_size == 0 || !spec.moe.shared_expert_gate) return std::nullopt;
  return std::optional<ReplicatedLinear>(std::in_place, store, name,
                                         /*bias_name=*/std::string(), spec.shared.hidden_size,
                                         /*out=*/1, spec.shared.init_std);
}

}  // namespace

MoeLayer::MoeLayer(ParameterStore& store, const LayerContext& context, const ModuleName& name,
                   const MoeSpec& spec)
    : moe_(spec.moe),
      router_(store, name + ".router", spec),
      shared_(SharedExperts(store, context, name + ".shared_experts", spec.shared)),
      shared_gate_(SharedExpertGate(store, name + ".shared_experts.gate_weight", spec)),
      experts_(store, context, name + ".experts", spec.expert, spec.moe.num_experts) {}

Tensor MoeLayer::WeightsOf(const LayerContext& context, const MoeSaved& saved) {
  return saved.router.weights.Rows(context.row_begin(), context.rows());
}

void MoeLayer::ForwardExperts(const LayerContext& context, const Tensor& x, MoeSaved& saved) const {
  const Tensor kept =
      router_.Forward(context, x, saved.router).Rows(context.row_begin(), context.rows());
  const Tensor rows = DispatchTokens(context, moe_, x, kept, saved.dispatch);
  ReturnResults(context, experts_.Forward(context, rows, saved.dispatch.expert_rows, saved.experts),
                saved.dispatch);
}

Tensor MoeLayer::ForwardShared(const LayerContext& context, const Tensor& x, MoeSaved& saved,
                               const Tensor& residual) const {
  Tensor y = shared_->Forward(context, x, saved.shared, shared_gate_ ? Tensor() : residual);
  if (!shared_gate_) return y;
  saved.shared_gate = shared_gate_->Forward(context, x, MemoryTag::kActivations);
  saved.shared_out = y;
  Tensor gated = context.New(y.shape(), MemoryTag::kWorkspace);
  GateRows(saved.shared_gate, y, gated);
  return gated;
}

Tensor MoeLayer::Forward(const LayerContext& context, LinearOperand x, MoeSaved& saved,
                         const Tensor& residual) const {
  ForwardExperts(context, x.matrix, saved);
  Tensor y = CombineTokens(context, saved.dispatch, WeightsOf(context, saved));
  if (shared_) Add(ForwardShared(context, x.matrix, saved, residual), y);
  if (residual.defined() && (!shared_ || shared_gate_)) Add(residual, y);
  if (context.Recomputes(RecomputeModule::kMlpAct)) saved.experts.linear_fc2 = {};
  return y;
}

void MoeLayer::Recompute(const LayerContext& context, LinearOperand x, MoeSaved& saved) const {
  if (saved.dispatch.results.defined()) {
    saved.router.input = x.matrix;
    if (shared_) shared_->Recompute(context, std::move(x), saved.shared);
    return;
  }
  ForwardExperts(context, x.matrix, saved);
  if (shared_gate_) {
    ForwardShared(context, x.matrix, saved, /*residual=*/{});
  } else if (shared_) {
    shared_->Recompute(context, std::move(x), saved.shared);
  }
}

void MoeLayer::SharedBackward(const LayerContext& context, MoeSaved& saved, const Tensor& dy,
                              Tensor& dx, bool accumulate) const {
  if (!shared_gate_) return Add(shared_->Backward(context, saved.shared, dy, accumulate), dx);
  Tensor dshared = context.New(dy.shape(), MemoryTag::kWorkspace);
  Tensor dgate = context.NewF32(saved.shared_gate.shape(), MemoryTag::kWorkspace);
  GateRowsBackward(saved.shared_gate, saved.shared_out, dy, dshared, dgate);
  Add(shared_->Backward(context, saved.shared, dshared, accumulate), dx);
  shared_gate_->Backward(context, saved.router.input, dgate, dx, accumulate);
}

Tensor MoeLayer::Backward(const LayerContext& context, MoeSaved& saved, const Tensor& dy,
                          bool accumulate) const {
  Tensor dweights;
  Tensor drows =
      CombineTokensBackward(context, saved.dispatch, WeightsOf(context, saved), dy, dweights);
  saved.dispatch.results = {};
  drows = experts_.Backward(context, saved.experts, saved.dispatch.expert_rows, drows, accumulate);
  Tensor dx = DispatchTokensBackward(context, saved.dispatch, drows);
  drows = {};
  router_.Backward(context, saved.router, dweights, dx, accumulate);
  if (shared_) SharedBackward(context, saved, dy, dx, accumulate);
  return dx;
}

}  // namespace trimtab
