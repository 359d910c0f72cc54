// A GPT-family model on one rank: embedding, L transformer layers, output head.
#pragma once

#include <functional>
#include <vector>

#include "engine/layers/embedding.h"
#include "engine/layers/lm_head.h"
#include "engine/layers/transformer_layer.h"

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
  /// Declares every parameter in `store`, in forward order. The first of the model's layers is
  /// called number `first_layer`.
  GptModel(ParameterStore& store, const LayerContext& context, int64_t first_layer = 0);

  /// Adds the sum of the cross-entropy over the micro batch to loss_sum [1]. See LmHead::Forward
  /// for `gradient_scale` [1] and `logits`.
  void Forward(const MicroBatch& batch, const Tensor& gradient_scale, Tensor& loss_sum,
               MicroBatchState& state, Tensor* logits = nullptr) const;

  /// Adds to the gradients (overwrites them when not `accumulate`) and empties `state`.
  /// `on_complete(offset)`, if set, is told whenever the gradients of all tensor-parallel
  /// parameters from flat element `offset` on are final for this micro batch.
  void Backward(MicroBatchState& state, bool accumulate,
                const std::function<void(int64_t offset)>& on_complete = {}) const;

  const std::vector<TransformerLayer>& layers() const { return layers_; }
  const LayerContext& context() const { return context_; }

  /// Told what linear layers multiply from now on; nullptr = nobody. Not owned.
  void Observe(LinearObserver* observer) { context_.observer = observer; }
  bool observed() const { return context_.observer != nullptr; }

 private:
  /// Whether layer `index` drops its state after Forward and runs it again in Backward.
  bool Recomputes(size_t index) const;
  void EnterLayer(PassKind pass, size_t index) const;

  LayerContext context_;
  int64_t first_layer_;
  Embedding embedding_;
  std::vector<TransformerLayer> layers_;
  LmHead head_;
};

}  // namespace trimtab
