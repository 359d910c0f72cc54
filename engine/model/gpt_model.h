// A GPT-family model, or one chunk of it: embedding, transformer layers, output head.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "engine/config/model/model_config.h"
#include "engine/layers/blocks/transformer_layer.h"
#include "engine/layers/embedding.h"
#include "engine/layers/lm_head.h"
#include "engine/parameters/unit_hooks.h"

namespace trimtab {

/// The part of a model that one GptModel holds.
struct ModelChunk {
  int64_t first_layer = 0;
  int64_t num_layers = 0;
  bool embedding = true;  // before the layers
  bool head = true;       // after them

  bool operator==(const ModelChunk&) const = default;
};

/// All of it.
ModelChunk WholeModel(const ModelConfig& model);

/// What goes into a chunk for one micro batch.
struct MicroBatch {
  Tensor tokens;       // [N] int32; with the embedding
  Tensor targets;      // [N] int32, the ids to predict; with the head
  Tensor hidden;       // [rows, C]; without the embedding: what the chunk before it returned
  Tensor positions{};  // [N] int32, in their documents; where those are masked
};

/// Memory for the ids that a chunk takes, `in_flight` micro batches of them.
std::vector<MicroBatch> NewBatches(const LayerContext& context, const ModelChunk& chunk,
                                   int64_t in_flight);

/// What a chunk keeps of one micro batch between Forward and the end of Backward.
struct MicroBatchState {
  Tensor tokens;     // [N] int32; with the embedding
  Tensor positions;  // [N] int32; where documents are masked
  EmbeddingSaved embedding;
  // Per layer and then the head: its input [rows, C]. Undefined within a group of layers that are
  // recomputed together, which keeps only the first one's.
  std::vector<Tensor> inputs;
  std::vector<TransformerLayerSaved> layers;  // undefined where the layer is recomputed
  LmHeadSaved head;
  Tensor gradient_scale;  // [1], as Forward got it
  // Between BackwardInput and BackwardWeight:
  std::vector<DeferredGradients> deferred;  // of the head, then of the layers, the last one first
  Tensor dembedding;                        // [rows, C], of the embedding's result
};

/// What goes into a chunk for one pass of serving, which has no backward pass.
/// What the head makes of the rows that are asked for.
enum class ServedHead : uint8_t {
  kLogits,
  kStates,  // the residual stream after the final norm
};

struct ServingPass {
  Tensor tokens;                         // [N] int32; with the embedding
  Tensor hidden;                         // [N, C]; without the embedding
  const RowLayout* rows = nullptr;       // what the N rows are
  std::span<const PagedCache> caches{};  // of the chunk's layers
  Tensor outputs;  // [M] int32: the rows whose logits are asked; with the head
  ServedHead head = ServedHead::kLogits;
};

class GptModel {
 public:
  /// Declares every parameter of the chunk in `store`, in forward order.
  GptModel(ParameterStore& store, const LayerContext& context, const ModelChunk& chunk);

  /// The residual stream [rows, C] after the chunk, for the next one. With the head it is undefined
  /// instead, and the sum of the cross-entropy over the micro batch is added to loss_sum [1]. See
  /// LmHead::Forward for `gradient_scale` [1] and `logits`.
  Tensor Forward(const MicroBatch& batch, const Tensor& gradient_scale, Tensor& loss_sum,
                 MicroBatchState& state, Tensor* logits = nullptr) const;

  /// The residual stream [N, C] after the chunk, or with the head this rank's logits
  /// [M, padded V / tp], or the states of all M rows [M, C]. Keys and values go to the caches;
  /// nothing else is kept. N and M are multiples of tp with sequence parallelism, of which `hidden`
  /// and the stream are this rank's rows; without context parallelism.
  Tensor Serve(const ServingPass& pass) const;

  /// The gradient of batch.hidden [rows, C], undefined with the embedding, from that of what
  /// Forward returned, which it takes as memory. Adds to the gradients of the weights (overwrites
  /// them when not `accumulate`) and empties `state`.
  Tensor Backward(MicroBatchState& state, Tensor dy, bool accumulate) const;

  // The same in two parts. The first leaves the gradients of matrices to the second.

  Tensor BackwardInput(MicroBatchState& state, Tensor dy, bool accumulate) const;
  void BackwardWeight(MicroBatchState& state, bool accumulate) const;

  /// What layers change at the end of a step, when statistics are of all ranks.
  void EndStep() const;

  const ModelChunk& chunk() const { return chunk_; }
  const std::vector<TransformerLayer>& layers() const { return layers_; }
  const LayerContext& context() const { return context_; }
  /// The table of a model that ties embedding and output projection, where the chunk has it;
  /// nullptr otherwise.
  Parameter* tied_table() const;

  /// Told what linear layers multiply from now on; nullptr = nobody. Not owned.
  void Observe(LinearObserver* observer) { context_.observer = observer; }
  bool observed() const { return context_.observer != nullptr; }
  /// Whom to tell of the units of parameters in use from now on. Not owned.
  void set_hooks(UnitHooks* hooks) { hooks_ = hooks; }

 private:
  /// The layers that are recomputed together with layer `index`, if it is.
  RecomputeGroup GroupOf(size_t index) const;
  /// Returns what layers need to know of the micro batch.
  LayerContext ContextOf(const MicroBatchState& state) const;
  /// Runs the group that ends at layer `last` forward again, keeping everything.
  void Recompute(const LayerContext& context, MicroBatchState& state, size_t last) const;
  void EnterLayer(PassKind pass, size_t index) const;
  size_t LayerUnit(size_t index) const { return layer_units_[index]; }
  /// The unit whose weights the forward pass reads in layer `index`: behind the layers, the head's.
  std::optional<size_t> UnitFrom(size_t index) const;
  /// The unit whose weights the backward pass reads after those of layer `index`: of the layer
  /// before it, or the first of the group that has to run again.
  std::optional<size_t> UnitBelow(size_t index, const MicroBatchState& state) const;

  // Backward, piece by piece.
  Tensor HeadBackward(const LayerContext& context, MicroBatchState& state, bool accumulate) const;
  void LayerBackward(const LayerContext& context, size_t index, MicroBatchState& state, Tensor& dx,
                     bool accumulate) const;
  void EmbeddingBackward(const LayerContext& context, const MicroBatchState& state, Tensor dx,
                         bool accumulate) const;

  LayerContext context_;
  ModelChunk chunk_;
  std::optional<Embedding> embedding_;
  std::vector<TransformerLayer> layers_;
  std::optional<LmHead> head_;
  // Units of parameters.
  size_t embedding_unit_ = 0;
  std::vector<size_t> layer_units_;
  size_t head_unit_ = 0;
  UnitHooks no_hooks_;
  UnitHooks* hooks_ = &no_hooks_;
};

}  // namespace trimtab
