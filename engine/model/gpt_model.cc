#include "engine/model/gpt_model.h"

#include <utility>

namespace trimtab {

GptModel::GptModel(ParameterStore& store, const LayerContext& context)
    : context_(context),
      embedding_(store, context_),
      layers_([&] {
        std::vector<TransformerLayer> layers;
        for (int64_t i = 0; i < context_.model.num_layers; ++i) {
          layers.emplace_back(store, context_, fmt::format("decoder.layers.{}", i));
        }
        return layers;
      }()),
      head_(store, context_, embedding_) {}

bool GptModel::Recomputes(size_t index) const {
  const RecomputeConfig& recompute = context_.parallel.layout.recompute;
  if (recompute.kind == RecomputeKind::kNone) return false;
  return recompute.num_layers < 0 || static_cast<int64_t>(index) < recompute.num_layers;
}

void GptModel::Forward(const Tensor& tokens, const Tensor& targets, const Tensor& gradient_scale,
                       Tensor& loss_sum, MicroBatchState& state, Tensor* logits) const {
  state.tokens = tokens;
  state.layers.resize(layers_.size());
  state.inputs.clear();
  state.inputs.push_back(embedding_.Forward(context_, tokens));
  for (size_t i = 0; i < layers_.size(); ++i) {
    TransformerLayerSaved saved;
    state.inputs.push_back(layers_[i].Forward(context_, state.inputs.back(), saved));
    if (!Recomputes(i)) state.layers[i] = std::move(saved);
  }
  head_.Forward(context_, state.inputs.back(), targets, gradient_scale, loss_sum, state.head,
                logits);
}

void GptModel::Backward(MicroBatchState& state, bool accumulate,
                        const std::function<void(int64_t offset)>& on_complete) const {
  Tensor dx = head_.Backward(context_, state.inputs.back(), state.head, accumulate);
  state.head = {};
  state.inputs.pop_back();
  for (size_t i = layers_.size(); i-- > 0;) {
    const Tensor& x = state.inputs.back();
    if (Recomputes(i)) layers_[i].Forward(context_, x, state.layers[i]);
    layers_[i].Backward(context_, x, state.layers[i], dx, accumulate);
    state.layers[i] = {};
    state.inputs.pop_back();
    if (on_complete) on_complete(layers_[i].first_parameter().offset);
  }
  embedding_.Backward(context_, state.tokens, dx, accumulate, context_.model.tied_embeddings);
  if (on_complete) on_complete(0);
  state = {};
}

}  // namespace trimtab
