// The experts of a layer on this rank, of which ep ranks have a share each: MLPs that are
// multiplied together, each with its own rows. Their columns are split over etp as an MLP's are
// over tp.
#pragma once

#include <string>

#include "engine/layers/layer_context.h"
#include "engine/layers/parameter.h"
#include "engine/ops/grouped_gemm.h"

namespace trimtab {

/// What MoeExperts keeps between Forward and Backward.
struct MoeExpertsSaved {
  Tensor input;       // [R, C]
  Tensor fc1;         // [R, F / etp], or gate and up [R, 2F / etp]: before the activation
  Tensor activation;  // [R, F / etp]; undefined where it is recomputed
};

class MoeExperts {
 public:
  MoeExperts(ParameterStore& store, const LayerContext& context, const ModuleName& name);

  /// y [R, C], an activation, from x [R, C], of whose rows each expert has `rows`: this rank's part
  /// of a sum over etp.
  Tensor Forward(const LayerContext& context, const Tensor& x, GroupRows rows,
                 MoeExpertsSaved& saved) const;
  /// This rank's part of dx [R, C], from dy [R, C].
  Tensor Backward(const LayerContext& context, MoeExpertsSaved& saved, GroupRows rows,
                  const Tensor& dy, bool accumulate) const;

 private:
  /// Gradients of the weight, and where there is one of the bias, from x [R, in] and dy [R, out].
  void WeightGradient(const LayerContext& context, Parameter& weight, const Tensor& x,
                      GroupRows rows, const Tensor& dy, bool accumulate) const;
  /// y [R, out] = every expert's rows of x times its matrix of `weight`.
  void Multiply(const LayerContext& context, const Parameter& weight, const Tensor& x,
                GroupRows rows, Tensor& y) const;
  /// The matrices of the rank's experts [E / ep, out, in].
  Tensor Matrices(const Tensor& parameter) const;
  Tensor Vectors(const Tensor& parameter) const;

  int64_t experts_;                // E / ep
  Parameter* fc1_;                 // [E / ep * fc1 / etp, C]: expert after expert
  Parameter* fc2_;                 // [E / ep * C, F / etp]
  Parameter* fc1_bias_ = nullptr;  // [E / ep * fc1 / etp]
  // [E / ep * C]: the same on every etp rank, of which the first adds it; each sees all rows, and
  // so makes the whole gradient.
  Parameter* fc2_bias_ = nullptr;
};

}  // namespace trimtab
