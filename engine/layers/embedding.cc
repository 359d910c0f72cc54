#include "engine/layers/embedding.h"

#include <algorithm>

#include "engine/layers/linear.h"
#include "engine/ops/elementwise.h"
#include "engine/ops/embedding.h"

namespace trimtab {

Parameter& DeclareVocabTable(ParameterStore& store, const LayerContext& context,
                             const ModuleName& name, bool duplicate) {
  const ModelConfig& model = context.model;
  const int64_t rows = model.padded_vocab_size(context.tp()) / context.tp();
  const int64_t start = context.parallel.tp_rank * rows;
  Partition partition = WholePartition(model.vocab_size, model.hidden_size);
  partition.segments = {{0, start, std::clamp<int64_t>(model.vocab_size - start, 0, rows)}};
  return store.Declare({.name = name,
                        .rows = rows,
                        .columns = model.hidden_size,
                        .duplicate = duplicate,
                        .init = InitKind::kNormal,
                        .init_std = model.init_std,
                        .partition = partition});
}

Embedding::Embedding(ParameterStore& store, const LayerContext& context)
    : tokens_(&DeclareVocabTable(store.BeginUnit(), context, kTokenTable)),
      vocab_start_(context.parallel.tp_rank * tokens_->spec.rows) {
  store.BeginUnit(/*reads_weights_backward=*/false).AlsoUse(*tokens_);
  const ModelConfig& model = context.model;
  if (model.position != PositionKind::kLearned) return;
  positions_ =
      &store.Declare({.name = "embedding.position_embeddings.weight",
                      .rows = model.max_sequence_length,
                      .columns = model.hidden_size,
                      .tensor_parallel = false,
                      .init = InitKind::kNormal,
                      .init_std = model.init_std,
                      .partition = WholePartition(model.max_sequence_length, model.hidden_size)});
}

Tensor Embedding::Forward(const LayerContext& context, const Tensor& tokens) const {
  const MemoryTag partial_tag =
      context.sequence_parallel() ? MemoryTag::kWorkspace : MemoryTag::kActivations;
  Tensor partial = context.New({context.tokens(), context.model.hidden_size}, partial_tag);
  EmbeddingForward(tokens, tokens_->weight, vocab_start_, partial);
  Tensor x = ReduceRows(context, std::move(partial), MemoryTag::kActivations);
  if (positions_ != nullptr) {
    PositionForward(positions_->weight, context.row_begin(), context.positions(), x);
  }
  return x;
}

void Embedding::Backward(const LayerContext& context, const Tensor& tokens, const Tensor& dx,
                         bool accumulate, bool token_gradient_written) const {
  if (positions_ != nullptr) {
    if (!accumulate) Fill(positions_->gradient, 0.0f);
    PositionBackward(dx, context.row_begin(), context.positions(), positions_->gradient);
  }
  if (!accumulate && !token_gradient_written) Fill(tokens_->gradient, 0.0f);
  EmbeddingBackward(tokens, GatherRows(context, dx), vocab_start_, tokens_->gradient);
}

}  // namespace trimtab
