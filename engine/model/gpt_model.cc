#include "engine/model/gpt_model.h"

#include <optional>
#include <utility>

namespace trimtab {

MicroBatch MicroBatch::Empty(const LayerContext& context) {
  const auto ids = [&context] {
    return Tensor::Empty(context.device, {context.tokens()}, DType::kI32, MemoryTag::kActivations);
  };
  return {.tokens = ids(), .targets = ids()};
}

GptModel::GptModel(ParameterStore& store, const LayerContext& context)
    : context_(context),
      first_unit_(store.units().size()),
      embedding_(store.BeginUnit(/*reads_weights_backward=*/false), context_),
      layers_([&] {
        std::vector<TransformerLayer> layers;
        for (int64_t i = 0; i < context_.model.num_layers; ++i) {
          layers.emplace_back(store.BeginUnit(), context_, TransformerLayer::NameOf(i));
        }
        return layers;
      }()),
      head_(store.BeginUnit(), context_, embedding_) {}

bool GptModel::Recomputes(size_t index) const {
  const RecomputeConfig plan =
      RecomputeOfLayer(context_.parallel.layout.recompute, static_cast<int64_t>(index));
  return plan.kind == RecomputeKind::kFull;
}

void GptModel::EnterLayer(PassKind pass, size_t index) const {
  context_.device.EnterPiece({PieceKind::kLayer, pass, static_cast<int64_t>(index)});
}

void GptModel::Forward(const MicroBatch& batch, const Tensor& gradient_scale, Tensor& loss_sum,
                       MicroBatchState& state, Tensor* logits) const {
  state.tokens = batch.tokens;
  state.layers.resize(layers_.size());
  state.inputs.clear();
  context_.device.EnterPiece({PieceKind::kEmbedding, PassKind::kForward});
  hooks_->BeginForward(first_unit_, LayerUnit(0));
  state.inputs.push_back(embedding_.Forward(context_, batch.tokens));
  hooks_->EndForward(first_unit_);
  for (size_t i = 0; i < layers_.size(); ++i) {
    EnterLayer(PassKind::kForward, i);
    hooks_->BeginForward(LayerUnit(i), LayerUnit(i + 1));
    TransformerLayerSaved saved;
    state.inputs.push_back(layers_[i].Forward(context_, state.inputs.back(), saved));
    if (!Recomputes(i)) state.layers[i] = std::move(saved);
    hooks_->EndForward(LayerUnit(i));
  }
  context_.device.EnterPiece({PieceKind::kHead, PassKind::kForward});
  hooks_->BeginForward(HeadUnit(), std::nullopt);
  head_.Forward(context_, state.inputs.back(), batch.targets, gradient_scale, loss_sum, state.head,
                logits);
}

void GptModel::Backward(MicroBatchState& state, bool accumulate) const {
  context_.device.EnterPiece({PieceKind::kHead, PassKind::kBackward});
  hooks_->BeginBackward(HeadUnit(), LayerUnit(layers_.size() - 1));
  Tensor dx = head_.Backward(context_, state.inputs.back(), state.head, accumulate);
  state.head = {};
  state.inputs.pop_back();
  hooks_->EndBackward(HeadUnit());
  for (size_t i = layers_.size(); i-- > 0;) {
    EnterLayer(PassKind::kBackward, i);
    hooks_->BeginBackward(LayerUnit(i), i > 0 ? std::optional(LayerUnit(i - 1)) : std::nullopt);
    const Tensor& x = state.inputs.back();
    if (Recomputes(i)) {
      EnterLayer(PassKind::kRecompute, i);
      layers_[i].Forward(context_, x, state.layers[i]);
      EnterLayer(PassKind::kBackward, i);
    }
    layers_[i].Backward(context_, x, state.layers[i], dx, accumulate);
    state.layers[i] = {};
    state.inputs.pop_back();
    hooks_->EndBackward(LayerUnit(i));
  }
  context_.device.EnterPiece({PieceKind::kEmbedding, PassKind::kBackward});
  hooks_->BeginBackward(first_unit_, std::nullopt);
  embedding_.Backward(context_, state.tokens, dx, accumulate, context_.model.tied_embeddings);
  hooks_->EndBackward(first_unit_);
  state = {};
}

}  // namespace trimtab
