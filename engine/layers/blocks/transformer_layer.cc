#include "engine/layers/blocks/transformer_layer.h"

#include <string>

namespace trimtab {

ModuleName TransformerLayer::NameOf(int64_t number) {
  return "decoder.layers." + ModuleName(std::to_string(number));
}

TransformerLayer::TransformerLayer(ParameterStore& store, const LayerContext& context,
                                   int64_t number, const LayerSpec& spec)
    : block_(Make(store, context, NameOf(number), spec)) {}

TransformerLayer::Block TransformerLayer::Make(ParameterStore& store, const LayerContext& context,
                                               const ModuleName& name, const LayerSpec& spec) {
  switch (spec.residual.kind) {
    case BlockKind::kSequential:
    case BlockKind::kSandwich:
    case BlockKind::kReorderedNorm:
      return SequentialBlock(store, context, name, spec);
    case BlockKind::kParallel:
    case BlockKind::kParallelShared:
      return ParallelBlock(store, context, name, spec);
    case BlockKind::kPostNorm:
      return PostNormBlock(store, context, name, spec);
    case BlockKind::kDeepNorm:
      return DeepNormBlock(store, context, name, spec);
  }
  TRIMTAB_ASSERT(false, "block kind {}", static_cast<int>(spec.residual.kind));
}

Tensor TransformerLayer::Forward(const LayerContext& context, const Tensor& x,
                                 TransformerLayerSaved& saved) const {
  return std::visit(
      [&]<typename Kind>(const Kind& block) {
        return block.Forward(context, x, saved.block.emplace<typename Kind::Saved>());
      },
      block_);
}

void TransformerLayer::Backward(const LayerContext& context, const Tensor& x,
                                TransformerLayerSaved& saved, Tensor& dx, bool accumulate) const {
  std::visit(
      [&]<typename Kind>(const Kind& block) {
        block.Backward(context, x, std::get<typename Kind::Saved>(saved.block), dx, accumulate);
      },
      block_);
}

}  // namespace trimtab
