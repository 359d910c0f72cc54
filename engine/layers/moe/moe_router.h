// The router of a layer with experts: which experts take a token, and with what weight.
//
// Every tensor-parallel rank routes all N tokens of its context-parallel share, from the logits
// that sequence parallelism has the ranks make for their rows. What is decided over whole sequences
// (ops/sequence_routing.h) sees the tokens of all context-parallel ranks, so that no layout changes
// a decision. Losses and counts are made in the backward pass, which runs once for a micro batch.
#pragma once

#include <string>

#include "engine/config/model/layer_spec.h"
#include "engine/layers/linear/replicated_linear.h"
#include "engine/parameters/buffers.h"

namespace trimtab {

/// What MoeRouter keeps between Forward and Backward.
struct MoeRouterSaved {
  Tensor input;    // [rows, C]; undefined where it is recomputed
  Tensor logits;   // [N, E] fp32, after the soft cap
  Tensor choice;   // [N, k] int32: the experts of each token
  Tensor weights;  // [N, k] fp32
};

class MoeRouter {
 public:
  MoeRouter(ParameterStore& store, const ModuleName& name, const MoeSpec& spec);

  /// The experts that take each token [N, k] (int32), -1 for one that has dropped it, from
  /// x [rows, C].
  Tensor Forward(const LayerContext& context, const Tensor& x, MoeRouterSaved& saved) const;
  /// Adds the gradient of x to dx [rows, C], from that of its tokens' weights [rows, k].
  void Backward(const LayerContext& context, const MoeRouterSaved& saved, const Tensor& dweights,
                Tensor& dx, bool accumulate) const;

  /// At the end of a step, when the statistics are of all ranks: moves the experts' bias.
  void EndStep() const;

  /// How many choices of the step each expert got [E].
  const Tensor& load() const { return load_->values; }
  /// Sums over the step's tokens of the load-balancing loss and of the z-loss [2].
  const Tensor& losses() const { return losses_->values; }

 private:
  void Choose(const LayerContext& context, MoeRouterSaved& saved) const;
  Tensor Keep(const LayerContext& context, const MoeRouterSaved& saved) const;
  /// Adds the gradients of the losses to dlogits [N, E].
  void LossesBackward(const LayerContext& context, const MoeRouterSaved& saved,
                      Tensor& dlogits) const;

  MoeConfig moe_;
  ReplicatedLinear linear_;
  Buffer* expert_bias_ = nullptr;
  Buffer* load_;
  Buffer* losses_;
};

}  // namespace trimtab
