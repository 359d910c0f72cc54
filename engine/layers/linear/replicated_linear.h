// A small linear layer that every tensor-parallel rank has whole: a router, a gate, a projection to
// a compressed vector. y = x W^T + b with W [out, in].
#pragma once

#include <string>

#include "engine/layers/layer_context.h"
#include "engine/parameters/parameter.h"

namespace trimtab {

class ReplicatedLinear {
 public:
  /// Declares `weight_name` [out, in] and, if `bias_name` is not empty, a bias [out].
  ReplicatedLinear(ParameterStore& store, const ModuleName& weight_name,
                   const ModuleName& bias_name, int64_t in, int64_t out, double init_std);

  /// y [rows, out] in `type` under `tag`, from x [rows, in].
  Tensor Forward(const LayerContext& context, const Tensor& x, MemoryTag tag,
                 DType type = DType::kF32) const;
  /// Adds the gradient of x to dx [rows, in], from dy [rows, out] of the type of y. Adds to the
  /// gradients of the weights, or overwrites them when not `accumulate`; with context.deferred the
  /// matrix's later.
  void Backward(const LayerContext& context, const Tensor& x, const Tensor& dy, Tensor& dx,
                bool accumulate) const;

 private:
  Parameter* weight_;
  Parameter* bias_ = nullptr;
};

}  // namespace trimtab
