// Normalisation: LayerNorm or RMSNorm, as a specification says.
#pragma once

#include <string>

#include "engine/config/model/layer_spec.h"
#include "engine/layers/layer_context.h"
#include "engine/layers/linear/linear_gemms.h"
#include "engine/ops/norm/norm.h"
#include "engine/parameters/parameter.h"

namespace trimtab {

inline NormOptions NormOptionsOf(const NormSpec& spec) {
  return {spec.epsilon, spec.weight_plus_one};
}
/// Weights of norms begin by leaving the size of what they multiply as it is.
inline InitKind NormWeightInit(const NormSpec& spec) {
  return spec.weight_plus_one ? InitKind::kZeros : InitKind::kOnes;
}

/// What Norm keeps between Forward and Backward, beside its input.
struct NormSaved {
  Tensor mean;  // [rows]; undefined for RMSNorm
  Tensor rstd;  // [rows]
};

class Norm {
 public:
  /// Over vectors of `columns`.
  Norm(ParameterStore& store, const ModuleName& name, const NormSpec& spec, int64_t columns);

  /// The next linear layer's input from x [rows, C]: y [rows, C], kept as an activation, or its fp8
  /// copies where `target` is given.
  LinearOperand Forward(const LayerContext& context, const Tensor& x, NormSaved& saved,
                        std::optional<Fp8Target> target = {}) const;
  /// Adds the gradient of x to dx. Returns that, with its fp8 copies where `target` is given.
  LinearOperand Backward(const LayerContext& context, const Tensor& x, const NormSaved& saved,
                         const Tensor& dy, Tensor& dx, bool accumulate,
                         std::optional<Fp8Target> target = {}) const;

 private:
  NormSpec spec_;
  Parameter* weight_ = nullptr;
  Parameter* bias_ = nullptr;
};

}  // namespace trimtab
