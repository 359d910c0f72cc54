#include "engine/model/gpt_model.h"

#include <utility>

#include "engine/ops/moe/permute.h"

namespace trimtab {
namespace {

/// What of a unit's gradients a backward pass makes now.
GradientPart PartOf(const LayerContext& context) {
  return context.deferred == nullptr ? GradientPart::kAll : GradientPart::kVectors;
}

}  // namespace

ModelChunk WholeModel(const ModelConfig& model) { return {.num_layers = model.num_layers}; }

std::vector<MicroBatch> NewBatches(const LayerContext& context, const ModelChunk& chunk,
                                   int64_t in_flight) {
  const auto ids = [&context] {
    return Tensor::Empty(context.device, {context.tokens()}, DType::kI32, MemoryTag::kActivations);
  };
  // The backward pass needs the tokens again, but not the targets, unless it makes the loss anew.
  const bool again = context.Recomputes(RecomputeModule::kLogits);
  const Tensor shared = chunk.head && !again ? ids() : Tensor();
  std::vector<MicroBatch> batches;
  for (int64_t i = 0; i < in_flight; ++i) {
    const Tensor tokens = chunk.embedding ? ids() : Tensor();
    const Tensor targets = chunk.head && again ? ids() : shared;
    const Tensor positions = context.masks_documents() ? ids() : Tensor();
    batches.push_back({.tokens = tokens, .targets = targets, .hidden = {}, .positions = positions});
  }
  return batches;
}

GptModel::GptModel(ParameterStore& store, const LayerContext& context, const ModelChunk& chunk)
    : context_(context), chunk_(chunk) {
  if (chunk.embedding) {
    embedding_.emplace(store, context_, context_.model.embedding());
    embedding_unit_ = store.current_unit();
  }
  layers_.reserve(static_cast<size_t>(chunk.num_layers));
  for (int64_t i = 0; i < chunk.num_layers; ++i) {
    const int64_t number = chunk.first_layer + i;
    layers_.emplace_back(store.BeginUnit(), context_, number, context_.model.layer(number));
    layer_units_.push_back(store.current_unit());
  }
  if (chunk.head) {
    head_.emplace(store, context_, context_.model.head(), embedding_ ? &*embedding_ : nullptr);
    head_unit_ = store.current_unit();
  }
}

Parameter* GptModel::tied_table() const {
  if (!context_.model.tied_embeddings) return nullptr;
  if (embedding_) return &embedding_->token_table();
  return head_ ? &head_->output_table() : nullptr;
}

RecomputeGroup GptModel::GroupOf(size_t index) const {
  return RecomputeGroupOf(context_.recompute(), static_cast<int64_t>(index),
                          static_cast<int64_t>(layers_.size()));
}

void GptModel::EnterLayer(PassKind pass, size_t index) const {
  context_.device.EnterPiece(
      {PieceKind::kLayer, pass, chunk_.first_layer + static_cast<int64_t>(index)});
}

std::optional<size_t> GptModel::UnitFrom(size_t index) const {
  if (index < layers_.size()) return LayerUnit(index);
  return head_ ? std::optional(head_unit_) : std::nullopt;
}

LayerContext GptModel::ContextOf(const MicroBatchState& state) const {
  LayerContext context = context_;
  context.positions = state.positions;
  return context;
}

Tensor GptModel::Forward(const MicroBatch& batch, const Tensor& gradient_scale, Tensor& loss_sum,
                         MicroBatchState& state, Tensor* logits) const {
  state.layers.resize(layers_.size());
  state.gradient_scale = gradient_scale;
  state.positions = batch.positions;
  const LayerContext context = ContextOf(state);
  state.inputs.clear();
  if (embedding_) {
    state.tokens = batch.tokens;
    context_.device.EnterPiece({PieceKind::kEmbedding, PassKind::kForward});
    hooks_->BeginForward(embedding_unit_, UnitFrom(0));
    state.inputs.push_back(embedding_->Forward(context, batch.tokens, state.embedding));
    hooks_->EndForward(embedding_unit_);
  } else {
    state.inputs.push_back(batch.hidden);
  }
  for (size_t i = 0; i < layers_.size(); ++i) {
    EnterLayer(PassKind::kForward, i);
    hooks_->BeginForward(LayerUnit(i), UnitFrom(i + 1));
    TransformerLayerSaved saved;
    state.inputs.push_back(layers_[i].Forward(context, state.inputs.back(), saved));
    const RecomputeGroup group = GroupOf(i);
    if (!group.recomputed) state.layers[i] = std::move(saved);
    if (group.first < static_cast<int64_t>(i)) state.inputs[i] = {};
    hooks_->EndForward(LayerUnit(i));
  }
  if (!head_) {
    Tensor hidden = std::move(state.inputs.back());
    state.inputs.pop_back();
    return hidden;
  }
  context_.device.EnterPiece({PieceKind::kHead, PassKind::kForward});
  hooks_->BeginForward(head_unit_, std::nullopt);
  head_->Forward(context, state.inputs.back(), batch.targets, gradient_scale, loss_sum, state.head,
                 logits);
  // Elsewhere its backward pass follows at once.
  if (context_.parallel.layout.schedule == Schedule::kGpipe) hooks_->EndForward(head_unit_);
  return {};
}

Tensor GptModel::Serve(const ServingPass& pass) const {
  LayerContext context = context_;
  context.micro_batch = 1;
  context.sequence = pass.rows->rows();
  context.paged = pass.rows;
  Tensor x = pass.hidden;
  if (embedding_) {
    context.device.EnterPiece({PieceKind::kEmbedding, PassKind::kForward});
    EmbeddingSaved saved;
    x = embedding_->Forward(context, pass.tokens, saved);
  }
  for (size_t i = 0; i < layers_.size(); ++i) {
    EnterLayer(PassKind::kForward, i);
    context.cache = &pass.caches[i];
    TransformerLayerSaved saved;
    x = layers_[i].Forward(context, x, saved);
  }
  if (!head_) return x;
  context.device.EnterPiece({PieceKind::kHead, PassKind::kForward});
  x = GatherRows(context, x);
  context.sequence = pass.outputs.numel();
  context.paged = nullptr;
  Tensor last = context.New({context.rows(), x.dim(1)}, MemoryTag::kActivations);
  Permute(x, pass.outputs.Slice(context.row_begin(), {context.rows()}), /*topk=*/1, last);
  if (pass.head == ServedHead::kStates) return GatherRows(context, head_->States(context, last));
  return head_->Logits(context, last);
}

std::optional<size_t> GptModel::UnitBelow(size_t index, const MicroBatchState& state) const {
  if (index == 0) return std::nullopt;
  const bool again = !state.layers[index - 1].defined();
  return LayerUnit(again ? static_cast<size_t>(GroupOf(index - 1).first) : index - 1);
}

void GptModel::Recompute(const LayerContext& context, MicroBatchState& state, size_t last) const {
  for (auto i = static_cast<size_t>(GroupOf(last).first); i <= last; ++i) {
    EnterLayer(PassKind::kBackward, i);
    hooks_->BeginForward(LayerUnit(i), i < last ? LayerUnit(i + 1) : UnitBelow(last, state));
    EnterLayer(PassKind::kRecompute, i);
    Tensor y = layers_[i].Forward(context, state.inputs[i], state.layers[i]);
    if (i == last) return;  // its backward pass follows at once
    state.inputs[i + 1] = std::move(y);
    hooks_->EndForward(LayerUnit(i));
  }
}

Tensor GptModel::HeadBackward(const LayerContext& context, MicroBatchState& state,
                              bool accumulate) const {
  context.device.EnterPiece({PieceKind::kHead, PassKind::kBackward});
  hooks_->BeginBackward(head_unit_, UnitBelow(layers_.size(), state));
  hooks_->BeginGradients(head_unit_, PartOf(context));
  Tensor dx = head_->Backward(context, state.inputs.back(), state.head, accumulate);
  state.head = {};
  state.inputs.pop_back();
  hooks_->EndBackward(head_unit_);
  hooks_->EndGradients(head_unit_, PartOf(context));
  return dx;
}

void GptModel::LayerBackward(const LayerContext& context, size_t index, MicroBatchState& state,
                             Tensor& dx, bool accumulate) const {
  if (!state.layers[index].defined()) Recompute(context, state, index);
  EnterLayer(PassKind::kBackward, index);
  hooks_->BeginBackward(LayerUnit(index), UnitBelow(index, state));
  hooks_->BeginGradients(LayerUnit(index), PartOf(context));
  LayerContext scaled = context;
  scaled.gradient_scale = state.gradient_scale;
  layers_[index].Backward(scaled, state.inputs.back(), state.layers[index], dx, accumulate);
  state.layers[index] = {};
  state.inputs.pop_back();
  hooks_->EndBackward(LayerUnit(index));
  hooks_->EndGradients(LayerUnit(index), PartOf(context));
}

void GptModel::EmbeddingBackward(const LayerContext& context, const MicroBatchState& state,
                                 Tensor dx, bool accumulate) const {
  context_.device.EnterPiece({PieceKind::kEmbedding, PassKind::kBackward});
  const bool reads_weights = embedding_->reads_weights_backward();
  if (reads_weights) hooks_->BeginBackward(embedding_unit_, std::nullopt);
  hooks_->BeginGradients(embedding_unit_, GradientPart::kAll);
  const bool written = context_.model.tied_embeddings && head_.has_value();
  embedding_->Backward(context, state.tokens, state.embedding, std::move(dx), accumulate, written);
  if (reads_weights) hooks_->EndBackward(embedding_unit_);
  hooks_->EndGradients(embedding_unit_, GradientPart::kAll);
}

Tensor GptModel::Backward(MicroBatchState& state, Tensor dy, bool accumulate) const {
  const LayerContext context = ContextOf(state);
  Tensor dx = head_ ? HeadBackward(context, state, accumulate) : std::move(dy);
  for (size_t i = layers_.size(); i-- > 0;) LayerBackward(context, i, state, dx, accumulate);
  if (embedding_) {
    EmbeddingBackward(context, state, std::exchange(dx, {}), accumulate);
  }
  state = {};
  return dx;
}

Tensor GptModel::BackwardInput(MicroBatchState& state, Tensor dy, bool accumulate) const {
  LayerContext context = ContextOf(state);
  const auto put_off = [&]() -> const LayerContext& {
    context.deferred = &state.deferred.emplace_back();
    return context;
  };
  Tensor dx = head_ ? HeadBackward(put_off(), state, accumulate) : std::move(dy);
  for (size_t i = layers_.size(); i-- > 0;) LayerBackward(put_off(), i, state, dx, accumulate);
  if (embedding_) state.dembedding = std::exchange(dx, {});
  return dx;
}

void GptModel::BackwardWeight(MicroBatchState& state, bool accumulate) const {
  size_t next = 0;
  const auto make = [&](size_t unit) {
    hooks_->BeginGradients(unit, GradientPart::kMatrices);
    for (const auto& gradient : state.deferred[next]) gradient(context_, accumulate);
    state.deferred[next++].clear();
    hooks_->EndGradients(unit, GradientPart::kMatrices);
  };
  if (head_) {
    context_.device.EnterPiece({PieceKind::kHead, PassKind::kBackward});
    make(head_unit_);
  }
  for (size_t i = layers_.size(); i-- > 0;) {
    EnterLayer(PassKind::kBackward, i);
    make(LayerUnit(i));
  }
  if (embedding_) EmbeddingBackward(ContextOf(state), state, state.dembedding, accumulate);
  state = {};
}

void GptModel::EndStep() const {
  for (const TransformerLayer& layer : layers_) {
    if (layer.moe() != nullptr) layer.moe()->router().EndStep();
  }
}

}  // namespace trimtab
