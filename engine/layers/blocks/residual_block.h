// How a layer's mixer and feed-forward part join the residual stream: one class for each topology,
// which declares the norms and both parts in the order of the checkpoint, and runs them.
#pragma once

#include "engine/layers/blocks/sublayers.h"

namespace trimtab {

/// A topology. It is made from the specification of a whole layer; Saved holds everything that the
/// layer keeps between Forward and Backward, beside its input. Norms' results that are recomputed
/// are undefined in it, and so is what is recomputed of the parts.
template <typename B>
concept ResidualBlock = std::movable<typename B::Saved> &&
    std::constructible_from<B, ParameterStore&, const LayerContext&, const ModuleName&,
                            const LayerSpec&> &&
    requires(const B& block, const LayerContext& context, const Tensor& x, typename B::Saved& saved,
             const typename B::Saved& kept, Tensor& dx, bool accumulate) {
  // False until Forward has run.
  { kept.defined() } -> std::same_as<bool>;
  // The residual stream after the layer [rows, C], an activation, from the one before it.
  { block.Forward(context, x, saved) } -> std::same_as<Tensor>;
  // Turns dx, the gradient of the output [rows, C], into that of the input, in place.
  { block.Backward(context, x, saved, dx, accumulate) } -> std::same_as<void>;
  { block.mlp() } -> std::same_as<const LayerMlp&>;
};

/// What a norm of a part's result keeps.
struct ResultNormSaved {
  Tensor input;  // [rows, C]
  NormSaved norm;
};

/// The gradient of `norm`'s input, in a new workspace tensor, from that of its result.
Tensor GradientThrough(const LayerContext& context, const Norm& norm, const Tensor& input,
                       const NormSaved& saved, const Tensor& dresult, bool accumulate);

}  // namespace trimtab
