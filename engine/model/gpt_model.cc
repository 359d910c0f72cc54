#include "engine/model/gpt_model.h"

#include <utility>

namespace trimtab {

ModelChunk WholeModel(const ModelConfig& model) { return {.num_layers = model.num_layers}; }

MicroBatch MicroBatch::Empty(const LayerContext& context) {
  const auto ids = [&context] {
    return Tensor::Empty(context.device, {context.tokens()}, DType::kI32, MemoryTag::kActivations);
  };
  return {.tokens = ids(), .targets = ids(), .hidden = {}};
}

GptModel::GptModel(ParameterStore& store, const LayerContext& context, const ModelChunk& chunk)
    : context_(context), chunk_(chunk) {
  if (chunk.embedding) embedding_.emplace(store, context_);
  for (int64_t i = 0; i < chunk.num_layers; ++i) {
    layers_.emplace_back(store, context_, TransformerLayer::NameOf(chunk.first_layer + i));
  }
  if (chunk.head) head_.emplace(store, context_, embedding_ ? &*embedding_ : nullptr);
}

Parameter* GptModel::tied_table() const {
  if (!context_.model.tied_embeddings) return nullptr;
  if (embedding_) return &embedding_->token_table();
  return head_ ? &head_->output_table() : nullptr;
}

RecomputeGroup GptModel::GroupOf(size_t index) const {
  return RecomputeGroupOf(context_.parallel.layout.recompute, static_cast<int64_t>(index),
                          static_cast<int64_t>(layers_.size()));
}

void GptModel::EnterLayer(PassKind pass, size_t index) const {
  context_.device.EnterPiece(
      {PieceKind::kLayer, pass, chunk_.first_layer + static_cast<int64_t>(index)});
}

Tensor GptModel::Forward(const MicroBatch& batch, const Tensor& gradient_scale, Tensor& loss_sum,
                         MicroBatchState& state, Tensor* logits) const {
  state.layers.resize(layers_.size());
  state.inputs.clear();
  if (embedding_) {
    state.tokens = batch.tokens;
    context_.device.EnterPiece({PieceKind::kEmbedding, PassKind::kForward});
    state.inputs.push_back(embedding_->Forward(context_, batch.tokens));
  } else {
    state.inputs.push_back(batch.hidden);
  }
  for (size_t i = 0; i < layers_.size(); ++i) {
    EnterLayer(PassKind::kForward, i);
    TransformerLayerSaved saved;
    state.inputs.push_back(layers_[i].Forward(context_, state.inputs.back(), saved));
    const RecomputeGroup group = GroupOf(i);
    if (!group.recomputed) state.layers[i] = std::move(saved);
    if (group.first < static_cast<int64_t>(i)) state.inputs[i] = {};
  }
  if (!head_) {
    Tensor hidden = std::move(state.inputs.back());
    state.inputs.pop_back();
    return hidden;
  }
  context_.device.EnterPiece({PieceKind::kHead, PassKind::kForward});
  head_->Forward(context_, state.inputs.back(), batch.targets, gradient_scale, loss_sum, state.head,
                 logits);
  return {};
}

void GptModel::Recompute(MicroBatchState& state, size_t last) const {
  for (auto i = static_cast<size_t>(GroupOf(last).first); i <= last; ++i) {
    EnterLayer(PassKind::kRecompute, i);
    Tensor y = layers_[i].Forward(context_, state.inputs[i], state.layers[i]);
    if (i < last) state.inputs[i + 1] = std::move(y);
  }
}

Tensor GptModel::HeadBackward(const LayerContext& context, MicroBatchState& state,
                              bool accumulate) const {
  context.device.EnterPiece({PieceKind::kHead, PassKind::kBackward});
  Tensor dx = head_->Backward(context, state.inputs.back(), state.head, accumulate);
  state.head = {};
  state.inputs.pop_back();
  return dx;
}

void GptModel::LayerBackward(const LayerContext& context, size_t index, MicroBatchState& state,
                             Tensor& dx, bool accumulate) const {
  if (!state.layers[index].defined()) Recompute(state, index);
  EnterLayer(PassKind::kBackward, index);
  layers_[index].Backward(context, state.inputs.back(), state.layers[index], dx, accumulate);
  state.layers[index] = {};
  state.inputs.pop_back();
}

void GptModel::EmbeddingBackward(const MicroBatchState& state, const Tensor& dx,
                                 bool accumulate) const {
  context_.device.EnterPiece({PieceKind::kEmbedding, PassKind::kBackward});
  const bool written = context_.model.tied_embeddings && head_.has_value();
  embedding_->Backward(context_, state.tokens, dx, accumulate, written);
}

Tensor GptModel::Backward(MicroBatchState& state, Tensor dy, bool accumulate,
                          const OnComplete& on_complete) const {
  Tensor dx = head_ ? HeadBackward(context_, state, accumulate) : std::move(dy);
  for (size_t i = layers_.size(); i-- > 0;) {
    LayerBackward(context_, i, state, dx, accumulate);
    if (on_complete) on_complete(layers_[i].first_parameter().offset);
  }
  if (embedding_) {
    EmbeddingBackward(state, dx, accumulate);
    if (on_complete) on_complete(0);
    dx = {};
  }
  state = {};
  return dx;
}

Tensor GptModel::BackwardInput(MicroBatchState& state, Tensor dy, bool accumulate) const {
  LayerContext context = context_;
  const auto put_off = [&]() -> const LayerContext& {
    context.deferred = &state.deferred.emplace_back();
    return context;
  };
  Tensor dx = head_ ? HeadBackward(put_off(), state, accumulate) : std::move(dy);
  for (size_t i = layers_.size(); i-- > 0;) LayerBackward(put_off(), i, state, dx, accumulate);
  if (embedding_) state.dembedding = std::exchange(dx, {});
  return dx;
}

void GptModel::BackwardWeight(MicroBatchState& state, bool accumulate,
                              const OnComplete& on_complete) const {
  size_t next = 0;
  const auto make = [&] {
    for (const auto& gradient : state.deferred[next]) gradient(context_, accumulate);
    state.deferred[next++].clear();
  };
  if (head_) {
    context_.device.EnterPiece({PieceKind::kHead, PassKind::kBackward});
    make();
  }
  for (size_t i = layers_.size(); i-- > 0;) {
    EnterLayer(PassKind::kBackward, i);
    make();
    if (on_complete) on_complete(layers_[i].first_parameter().offset);
  }
  if (embedding_) {
    EmbeddingBackward(state, state.dembedding, accumulate);
    if (on_complete) on_complete(0);
  }
  state = {};
}

}  // namespace trimtab
