#include "engine/layers/embedding.h"

#include <algorithm>
#include <utility>

#include "engine/layers/linear.h"
#include "engine/ops/elementwise.h"
#include "engine/ops/embedding.h"
#include "engine/ops/packed_lookup.h"

namespace trimtab {

namespace {

SoftCap ScaleOf(const ModelConfig& model) {
  return {.scale = static_cast<float>(model.embedding_scale)};
}

/// The rows of the position table, or of its gradient, from that of position 0 on.
Tensor FromPositionZero(const ModelConfig& model, const Tensor& table) {
  return table.Slice(model.position_offset * model.hidden_size,
                     {model.max_sequence_length, model.hidden_size});
}

}  // namespace

Parameter& DeclareVocabTable(ParameterStore& store, const LayerContext& context,
                             const ModuleName& name, VocabTable use) {
  const ModelConfig& model = context.model;
  const int64_t rows = model.padded_vocab_size(context.tp()) / context.tp();
  const int64_t start = context.parallel.tp_rank * rows;
  Partition partition = WholePartition(model.vocab_size, model.embedding_size());
  partition.segments = {{0, start, std::clamp<int64_t>(model.vocab_size - start, 0, rows)}};
  return store.Declare({.name = name,
                        .rows = rows,
                        .columns = model.embedding_size(),
                        .duplicate = use == VocabTable::kOutputDuplicate,
                        .multiplied = use == VocabTable::kEmbedding ? 0 : 1,
                        .looked_up = use == VocabTable::kEmbedding,
                        .init = InitKind::kNormal,
                        .init_std = model.init_std,
                        .partition = partition});
}

Embedding::Embedding(ParameterStore& store, const LayerContext& context)
    : tokens_(&DeclareVocabTable(store.BeginUnit(), context, kTokenTable, VocabTable::kEmbedding)),
      vocab_start_(context.parallel.tp_rank * tokens_->spec.rows) {
  const ModelConfig& model = context.model;
  // By the head, on this stage or another: all stages have the same numbers.
  if (model.tied_embeddings) tokens_->spec.multiplied = 1;
  store.BeginUnit(/*reads_weights_backward=*/model.embedding_norm || model.narrow_embedding())
      .AlsoUse(*tokens_);
  if (model.narrow_embedding()) {
    projection_.emplace(store, context, "embedding.project_in.weight", /*bias_name=*/"",
                        model.embedding_size(), model.hidden_size);
  }
  if (model.position == PositionKind::kLearned) {
    positions_ =
        &store.Declare({.name = "embedding.position_embeddings.weight",
                        .rows = model.position_rows(),
                        .columns = model.hidden_size,
                        .tensor_parallel = false,
                        .looked_up = true,
                        .init = InitKind::kNormal,
                        .init_std = model.init_std,
                        .partition = WholePartition(model.position_rows(), model.hidden_size)});
  }
  if (model.embedding_norm) norm_.emplace(store, context, "embedding.word_embeddings_layernorm");
}

Tensor Embedding::Forward(const LayerContext& context, const Tensor& tokens,
                          EmbeddingSaved& saved) const {
  const MemoryTag partial_tag =
      context.sequence_parallel() ? MemoryTag::kWorkspace : MemoryTag::kActivations;
  Tensor partial = context.New({context.tokens(), context.model.embedding_size()}, partial_tag);
  if (tokens_->weight.defined()) {
    EmbeddingForward(tokens, tokens_->weight, vocab_start_, partial);
  } else {
    PackedLookup(tokens, tokens_->packed, vocab_start_, partial);
  }
  Tensor x = ReduceRows(context, std::move(partial), MemoryTag::kActivations);
  const SoftCap scale = ScaleOf(context.model);
  if (!scale.identity()) ApplySoftCap(scale, x);
  if (projection_) {
    saved.narrow = x;
    x = projection_->Forward(context, saved.narrow, MemoryTag::kActivations,
                             context.types.activations);
  }
  if (positions_ != nullptr) {
    PositionForward(FromPositionZero(context.model, positions_->weight), context.row_begin(),
                    context.row_layout(), x);
  }
  if (!norm_) return x;
  saved.sum = x;
  return norm_->Forward(context, x, saved.norm).matrix;
}

void Embedding::Backward(const LayerContext& context, const Tensor& tokens,
                         const EmbeddingSaved& saved, Tensor dx, bool accumulate,
                         bool token_gradient_written) const {
  if (norm_) {
    Tensor dsum = context.New(dx.shape(), MemoryTag::kWorkspace);
    Fill(dsum, 0.0f);
    norm_->Backward(context, saved.sum, saved.norm, dx, dsum, accumulate);
    dx = std::move(dsum);
  }
  if (positions_ != nullptr) {
    if (!accumulate) Fill(positions_->gradient, 0.0f);
    Tensor gradient = FromPositionZero(context.model, positions_->gradient);
    PositionBackward(dx, context.row_begin(), context.row_layout(), gradient);
  }
  if (projection_) {
    Tensor dnarrow = context.New(saved.narrow.shape(), MemoryTag::kWorkspace);
    Fill(dnarrow, 0.0f);
    projection_->Backward(context, saved.narrow, dx, dnarrow, accumulate);
    dx = std::move(dnarrow);
  }
  if (!accumulate && !token_gradient_written) Fill(tokens_->gradient, 0.0f);
  const SoftCap scale = ScaleOf(context.model);
  if (!scale.identity()) ApplySoftCap(scale, dx);
  EmbeddingBackward(tokens, GatherRows(context, dx), vocab_start_, tokens_->gradient);
}

}  // namespace trimtab
