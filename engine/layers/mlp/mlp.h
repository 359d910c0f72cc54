// The feed-forward block: an activation function, gated or not, between two linear layers.
#pragma once

#include <string>

#include "engine/config/model/layer_spec.h"
#include "engine/layers/linear/linear.h"

namespace trimtab {

/// What Mlp keeps between Forward and Backward.
struct MlpSaved {
  LinearSaved linear_fc1;
  Tensor fc1;              // [N, F / tp], or gate and up [N, 2F / tp]: before the activation
  LinearSaved linear_fc2;  // its input is the activation [N, F / tp]; nothing with mlp_act

  /// Whether what the MLP got is there, and dropping it.
  bool has_input() const { return linear_fc1.defined(); }
  void DropInput() { linear_fc1 = {}; }
};

class Mlp {
 public:
  using Spec = MlpSpec;
  using Saved = MlpSaved;

  Mlp(ParameterStore& store, const LayerContext& context, const ModuleName& name,
      const MlpSpec& spec);

  /// y [rows, C], an activation, from x [rows, C]; plus `residual` [rows, C], where that is
  /// defined.
  Tensor Forward(const LayerContext& context, LinearOperand x, MlpSaved& saved,
                 const Tensor& residual) const;
  /// Where a fused op may write x itself.
  std::optional<Fp8Target> InputTarget(const LayerContext& context) const {
    return linear_fc1_.InputTarget(context);
  }
  /// Makes again, from x, what `saved` lacks because the norm before it, or all of it, is
  /// recomputed.
  void Recompute(const LayerContext& context, LinearOperand x, MlpSaved& saved) const;
  /// dx [rows, C] from dy [rows, C].
  Tensor Backward(const LayerContext& context, MlpSaved& saved, const Tensor& dy,
                  bool accumulate) const;

 private:
  /// Whether the activation is made beside the products.
  bool FusesGelu(const LayerContext& context) const {
    return spec_.activation == ActivationKind::kGelu && linear_fc1_.TakesGelu(context) &&
           linear_fc2_.TakesGelu(context);
  }
  /// saved.fc1 and the activation, from x.
  LinearOperand Activate(const LayerContext& context, LinearOperand x, MlpSaved& saved) const;
  /// The gradient of saved.fc1 from dy.
  LinearOperand ActivateBackward(const LayerContext& context, const MlpSaved& saved,
                                 const Tensor& dy, bool accumulate) const;
  /// The activation function from saved.fc1, and the gradient of saved.fc1 from that of its result.
  LinearOperand ActivationForward(const LayerContext& context, const MlpSaved& saved) const;
  LinearOperand ActivationBackward(const LayerContext& context, const MlpSaved& saved,
                                   Tensor dactivation, bool accumulate) const;

  MlpSpec spec_;
  ColumnParallelLinear linear_fc1_;
  RowParallelLinear linear_fc2_;
};

}  // namespace trimtab
