#include "engine/model/gpt_model.h"

#include <utility>

namespace trimtab {

MicroBatch MicroBatch::Empty(const LayerContext& context) {
  const auto ids = [&context] {
    return Tensor::Empty(context.device, {context.tokens()}, DType::kI32, MemoryTag::kActivations);
  };
  return {.tokens = ids(), .targets = ids()};
}

GptModel::GptModel(ParameterStore& store, const LayerContext& context, int64_t first_layer)
    : context_(context),
      first_layer_(first_layer),
      embedding_(store, context_),
      layers_([&] {
        std::vector<TransformerLayer> layers;
        for (int64_t i = 0; i < context_.model.num_layers; ++i) {
          layers.emplace_back(store, context_, TransformerLayer::NameOf(first_layer + i));
        }
        return layers;
      }()),
      head_(store, context_, embedding_) {}

bool GptModel::Recomputes(size_t index) const {
  const RecomputeConfig plan =
      RecomputeOfLayer(context_.parallel.layout.recompute, static_cast<int64_t>(index));
  return plan.kind == RecomputeKind::kFull;
}

void GptModel::EnterLayer(PassKind pass, size_t index) const {
  context_.device.EnterPiece({PieceKind::kLayer, pass, first_layer_ + static_cast<int64_t>(index)});
}

void GptModel::Forward(const MicroBatch& batch, const Tensor& gradient_scale, Tensor& loss_sum,
                       MicroBatchState& state, Tensor* logits) const {
  state.tokens = batch.tokens;
  state.layers.resize(layers_.size());
  state.inputs.clear();
  context_.device.EnterPiece({PieceKind::kEmbedding, PassKind::kForward});
  state.inputs.push_back(embedding_.Forward(context_, batch.tokens));
  for (size_t i = 0; i < layers_.size(); ++i) {
    EnterLayer(PassKind::kForward, i);
    TransformerLayerSaved saved;
    state.inputs.push_back(layers_[i].Forward(context_, state.inputs.back(), saved));
    if (!Recomputes(i)) state.layers[i] = std::move(saved);
  }
  context_.device.EnterPiece({PieceKind::kHead, PassKind::kForward});
  head_.Forward(context_, state.inputs.back(), batch.targets, gradient_scale, loss_sum, state.head,
                logits);
}

void GptModel::Backward(MicroBatchState& state, bool accumulate,
                        const std::function<void(int64_t offset)>& on_complete) const {
  context_.device.EnterPiece({PieceKind::kHead, PassKind::kBackward});
  Tensor dx = head_.Backward(context_, state.inputs.back(), state.head, accumulate);
  state.head = {};
  state.inputs.pop_back();
  for (size_t i = layers_.size(); i-- > 0;) {
    const Tensor& x = state.inputs.back();
    if (Recomputes(i)) {
      EnterLayer(PassKind::kRecompute, i);
      layers_[i].Forward(context_, x, state.layers[i]);
    }
    EnterLayer(PassKind::kBackward, i);
    layers_[i].Backward(context_, x, state.layers[i], dx, accumulate);
    state.layers[i] = {};
    state.inputs.pop_back();
    if (on_complete) on_complete(layers_[i].first_parameter().offset);
  }
  context_.device.EnterPiece({PieceKind::kEmbedding, PassKind::kBackward});
  embedding_.Backward(context_, state.tokens, dx, accumulate, context_.model.tied_embeddings);
  if (on_complete) on_complete(0);
  state = {};
}

}  // namespace trimtab
