// The experts of a layer on this rank, of which ep ranks have a share each: MLPs that are
// multiplied together, each with its own rows. Their columns are split over etp as an MLP's are
// over tp.
#pragma once

#include <string>

#include "engine/config/model/layer_spec.h"
#include "engine/layers/linear/grouped_gemms.h"

namespace trimtab {

/// What MoeExperts keeps between Forward and Backward.
struct MoeExpertsSaved {
  LinearSaved linear_fc1;  // of its input [R, C]
  Tensor fc1;              // [R, F / etp], or gate and up [R, 2F / etp]: before the activation
  LinearSaved linear_fc2;  // of the activation [R, F / etp]; nothing where it is recomputed
};

class MoeExperts {
 public:
  /// `count` experts, all of `spec`.
  MoeExperts(ParameterStore& store, const LayerContext& context, const ModuleName& name,
             const MlpSpec& spec, int64_t count);

  /// y [R, C], an activation, from x [R, C], of whose rows each expert has `rows`: this rank's part
  /// of a sum over etp.
  Tensor Forward(const LayerContext& context, const Tensor& x, GroupRows rows,
                 MoeExpertsSaved& saved) const;
  /// This rank's part of dx [R, C], from dy [R, C].
  Tensor Backward(const LayerContext& context, MoeExpertsSaved& saved, GroupRows rows,
                  const Tensor& dy, bool accumulate) const;

 private:
  /// A bias of the rank's experts, or its gradient, as [E / ep, out].
  Tensor Vectors(const Tensor& parameter) const;

  ActivationKind activation_;
  int64_t experts_;                // E / ep
  GroupedGemms fc1_;               // weight [E / ep * fc1 / etp, C]: expert after expert
  GroupedGemms fc2_;               // weight [E / ep * C, F / etp]
  Parameter* fc1_bias_ = nullptr;  // [E / ep * fc1 / etp]
  // [E / ep * C]: the same on every etp rank, of which the first adds it; each sees all rows, and
  // so makes the whole gradient.
  Parameter* fc2_bias_ = nullptr;
};

}  // namespace trimtab
