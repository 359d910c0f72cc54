// A GPT-family model on one rank: embedding, L transformer layers, output head.
#pragma once

#include <vector>

#include "engine/layers/embedding.h"
#include "engine/layers/lm_head.h"
#include "engine/layers/transformer_layer.h"
#include "engine/layers/unit_hooks.h"

namespace trimtab {

/// What goes into a micro batch: the token ids and those to predict, [N] int32 each.
struct MicroBatch {
  Tensor tokens;
  Tensor targets;

  static MicroBatch Empty(const LayerContext& context);
};

/// What the model keeps of one micro batch between Forward and Backward.
struct MicroBatchState {
  Tensor tokens;                              // [N] int32
  std::vector<Tensor> inputs;                 // per layer and then the head: its input [rows, C]
  std::vector<TransformerLayerSaved> layers;  // empty where the layer recomputes
  LmHeadSaved head;
};

class GptModel {
 public:
  /// Declares every parameter in `store`, in forward order: a unit for the embedding, one for each
  /// layer, one for the head.
  GptModel(ParameterStore& store, const LayerContext& context);

  /// Adds the sum of the cross-entropy over the micro batch to loss_sum [1]. See LmHead::Forward
  /// for `gradient_scale` [1] and `logits`.
  void Forward(const MicroBatch& batch, const Tensor& gradient_scale, Tensor& loss_sum,
               MicroBatchState& state, Tensor* logits = nullptr) const;

  /// Adds to the gradients (overwrites them when not `accumulate`) and empties `state`.
  void Backward(MicroBatchState& state, bool accumulate) const;

  const std::vector<TransformerLayer>& layers() const { return layers_; }
  const LayerContext& context() const { return context_; }

  /// Told what linear layers multiply from now on; nullptr = nobody. Not owned.
  void Observe(LinearObserver* observer) { context_.observer = observer; }
  bool observed() const { return context_.observer != nullptr; }
  /// Whom to tell of the units of parameters in use from now on. Not owned.
  void set_hooks(UnitHooks* hooks) { hooks_ = hooks; }

 private:
  /// Whether layer `index` drops its state after Forward and runs it again in Backward.
  bool Recomputes(size_t index) const;
  void EnterLayer(PassKind pass, size_t index) const;
  // Units of parameters: the embedding's is the first.
  size_t LayerUnit(size_t index) const { return first_unit_ + 1 + index; }
  size_t HeadUnit() const { return LayerUnit(layers_.size()); }

  LayerContext context_;
  UnitHooks no_hooks_;
  UnitHooks* hooks_ = &no_hooks_;
  size_t first_unit_;
  Embedding embedding_;
  std::vector<TransformerLayer> layers_;
  LmHead head_;
};

}  // namespace trimtab
