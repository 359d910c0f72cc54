// The MLP of a layer with experts (mixture of experts; Shazeer et al., arXiv:1701.06538): each
// token goes to k of E experts, and to the shared experts, if there are any (DeepSeekMoE,
// arXiv:2401.06066).
#pragma once

#include <optional>
#include <string>

#include "engine/layers/mlp/mlp.h"
#include "engine/layers/moe/moe_dispatcher.h"
#include "engine/layers/moe/moe_experts.h"
#include "engine/layers/moe/moe_router.h"

namespace trimtab {

/// What MoeLayer keeps between Forward and Backward.
struct MoeSaved {
  MoeRouterSaved router;
  MoeDispatch dispatch;
  MoeExpertsSaved experts;
  MlpSaved shared;     // with shared experts
  Tensor shared_gate;  // [rows, 1] fp32; with a gate
  Tensor shared_out;   // [rows, C], before the gate; with a gate

  /// Whether what the layer got is there, and dropping it.
  bool has_input() const { return router.input.defined(); }
  void DropInput() {
    router.input = {};
    shared.DropInput();
  }
};

class MoeLayer {
 public:
  using Spec = MoeSpec;
  using Saved = MoeSaved;

  MoeLayer(ParameterStore& store, const LayerContext& context, const ModuleName& name,
           const MoeSpec& spec);

  /// As Mlp's. x is stored: router and experts read it.
  Tensor Forward(const LayerContext& context, LinearOperand x, MoeSaved& saved,
                 const Tensor& residual) const;
  std::optional<Fp8Target> InputTarget(const LayerContext&) const { return std::nullopt; }
  void Recompute(const LayerContext& context, LinearOperand x, MoeSaved& saved) const;
  Tensor Backward(const LayerContext& context, MoeSaved& saved, const Tensor& dy,
                  bool accumulate) const;

  const MoeRouter& router() const { return router_; }

 private:
  /// The weights [rows, k] of this rank's tokens.
  static Tensor WeightsOf(const LayerContext& context, const MoeSaved& saved);
  /// From x [rows, C] to the experts' results.
  void ForwardExperts(const LayerContext& context, const Tensor& x, MoeSaved& saved) const;
  /// The shared experts' result [rows, C]; without a gate, plus `residual`.
  Tensor ForwardShared(const LayerContext& context, const Tensor& x, MoeSaved& saved,
                       const Tensor& residual) const;
  /// Adds the gradient of x to dx [rows, C].
  void SharedBackward(const LayerContext& context, MoeSaved& saved, const Tensor& dy, Tensor& dx,
                      bool accumulate) const;

  MoeConfig moe_;
  MoeRouter router_;
  std::optional<Mlp> shared_;
  std::optional<ReplicatedLinear> shared_gate_;
  MoeExperts experts_;  // last, as are their parameters
};

}  // namespace trimtab
