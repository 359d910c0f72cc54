// The feed-forward block: GELU (GPT-2) or SwiGLU (Llama) between two linear layers.
#pragma once

#include <string>

#include "engine/layers/linear.h"

namespace trimtab {

/// What Mlp keeps between Forward and Backward.
struct MlpSaved {
  LinearSaved linear_fc1;
  Tensor fc1;              // [N, F / tp], or gate and up [N, 2F / tp]: before the activation
  LinearSaved linear_fc2;  // its input is the activation [N, F / tp]
};

class Mlp {
 public:
  Mlp(ParameterStore& store, const LayerContext& context, const std::string& name);

  /// y [rows, C], an activation, from x [rows, C].
  Tensor Forward(const LayerContext& context, const Tensor& x, MlpSaved& saved) const;
  /// dx [rows, C] from dy [rows, C].
  Tensor Backward(const LayerContext& context, const MlpSaved& saved, const Tensor& dy,
                  bool accumulate) const;

 private:
  ColumnParallelLinear linear_fc1_;
  RowParallelLinear linear_fc2_;
};

}  // namespace trimtab
