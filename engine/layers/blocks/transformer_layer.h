// One transformer layer: a mixer and a feed-forward part, added to the residual stream as its
// specification says.
#pragma once

#include <variant>

#include "engine/layers/blocks/deep_norm_block.h"
#include "engine/layers/blocks/parallel_block.h"
#include "engine/layers/blocks/post_norm_block.h"
#include "engine/layers/blocks/sequential_block.h"

namespace trimtab {

/// Everything a layer keeps between Forward and Backward, beside its input.
struct TransformerLayerSaved {
  std::variant<SequentialBlockSaved, ParallelBlockSaved, PostNormBlockSaved, DeepNormBlockSaved>
      block;

  /// Nothing of a layer is kept where all of it is recomputed.
  bool defined() const {
    return std::visit([](const auto& kept) { return kept.defined(); }, block);
  }
};

class TransformerLayer {
 public:
  /// The name of layer `number` of a model: "decoder.layers.3".
  static ModuleName NameOf(int64_t number);

  /// Layer `number` of a model.
  TransformerLayer(ParameterStore& store, const LayerContext& context, int64_t number,
                   const LayerSpec& spec);

  // See ResidualBlock.

  Tensor Forward(const LayerContext& context, const Tensor& x, TransformerLayerSaved& saved) const;
  void Backward(const LayerContext& context, const Tensor& x, TransformerLayerSaved& saved,
                Tensor& dx, bool accumulate) const;

  /// The layer's experts; nullptr where its MLP is dense.
  const MoeLayer* moe() const {
    return std::visit([](const auto& block) { return block.mlp().template If<MoeLayer>(); },
                      block_);
  }

 private:
  using Block = std::variant<SequentialBlock, ParallelBlock, PostNormBlock, DeepNormBlock>;

  static Block Make(ParameterStore& store, const LayerContext& context, const ModuleName& name,
                    const LayerSpec& spec);

  Block block_;
};

}  // namespace trimtab
