#include "engine/layers/embedding.h"

#include <algorithm>
#include <utility>

#include "engine/layers/linear/linear.h"
#include "engine/ops/elementwise/elementwise.h"
#include "engine/ops/packed/packed_lookup.h"
#include "engine/ops/vocabulary/embedding.h"

namespace trimtab {

namespace {

SoftCap ScaleOf(const EmbeddingSpec& spec) { return {.scale = static_cast<float>(spec.scale)}; }

/// The rows of the position table, or of its gradient, from that of position 0 on.
Tensor FromPositionZero(const EmbeddingSpec& spec, const Tensor& table) {
  return table.Slice(spec.position_offset * spec.hidden_size, {spec.positions, spec.hidden_size});
}

}  // namespace

Parameter& DeclareVocabTable(ParameterStore& store, const LayerContext& context,
                             const ModuleName& name, const VocabSpec& spec, VocabTable use) {
  const int64_t rows = spec.padded_rows(context.tp()) / context.tp();
  const int64_t start = context.parallel.tp_rank * rows;
  Partition partition = WholePartition(spec.vocab_size, spec.width);
  partition.segments = {{0, start, std::clamp<int64_t>(spec.vocab_size - start, 0, rows)}};
  return store.Declare({.name = name,
                        .rows = rows,
                        .columns = spec.width,
                        .duplicate = use == VocabTable::kOutputDuplicate,
                        .multiplied = use == VocabTable::kEmbedding ? 0 : 1,
                        .looked_up = use == VocabTable::kEmbedding,
                        .vocabulary = true,
                        .init = InitKind::kNormal,
                        .init_std = spec.init_std,
                        .partition = partition});
}

Embedding::Embedding(ParameterStore& store, const LayerContext& context, const EmbeddingSpec& spec)
    : spec_(spec),
      tokens_(&DeclareVocabTable(store.BeginUnit(), context, kTokenTable, spec.table,
                                 VocabTable::kEmbedding)),
      vocab_start_(context.parallel.tp_rank * tokens_->spec.rows) {
  // By the head, on this stage or another: all stages have the same numbers.
  if (spec.tied) tokens_->spec.multiplied = 1;
  store.BeginUnit(/*reads_weights_backward=*/spec.norm || spec.narrow()).AlsoUse(*tokens_);
  if (spec.narrow()) {
    projection_.emplace(store, "embedding.project_in.weight", /*bias_name=*/"", spec.table.width,
                        spec.hidden_size, spec.table.init_std);
  }
  if (spec.positions > 0) {
    const int64_t rows = spec.positions + spec.position_offset;
    positions_ = &store.Declare({.name = "embedding.position_embeddings.weight",
                                 .rows = rows,
                                 .columns = spec.hidden_size,
                                 .tensor_parallel = false,
                                 .looked_up = true,
                                 .init = InitKind::kNormal,
                                 .init_std = spec.table.init_std,
                                 .partition = WholePartition(rows, spec.hidden_size)});
  }
  if (spec.norm) {
    norm_.emplace(store, "embedding.word_embeddings_layernorm", *spec.norm, spec.hidden_size);
  }
}

Tensor Embedding::Forward(const LayerContext& context, const Tensor& tokens,
                          EmbeddingSaved& saved) const {
  const MemoryTag partial_tag =
      context.sequence_parallel() ? MemoryTag::kWorkspace : MemoryTag::kActivations;
  Tensor partial = context.New({context.tokens(), spec_.table.width}, partial_tag);
  if (tokens_->weight.defined()) {
    EmbeddingForward(tokens, tokens_->weight, vocab_start_, partial);
  } else {
    PackedLookup(tokens, tokens_->packed, vocab_start_, partial);
  }
  Tensor x = ReduceRows(context, std::move(partial), MemoryTag::kActivations);
  const SoftCap scale = ScaleOf(spec_);
  if (!scale.identity()) ApplySoftCap(scale, x);
  if (projection_) {
    saved.narrow = x;
    x = projection_->Forward(context, saved.narrow, MemoryTag::kActivations,
                             context.types.activations);
  }
  if (positions_ != nullptr) {
    PositionForward(FromPositionZero(spec_, positions_->weight), context.row_begin(),
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
  if (positions_ != nullptr && positions_->spec.trainable) {
    if (!accumulate) Fill(positions_->gradient, 0.0f);
    Tensor gradient = FromPositionZero(spec_, positions_->gradient);
    PositionBackward(dx, context.row_begin(), context.row_layout(), gradient);
  }
  if (projection_) {
    Tensor dnarrow = context.New(saved.narrow.shape(), MemoryTag::kWorkspace);
    Fill(dnarrow, 0.0f);
    projection_->Backward(context, saved.narrow, dx, dnarrow, accumulate);
    dx = std::move(dnarrow);
  }
  if (!tokens_->spec.trainable) return;
  if (!accumulate && !token_gradient_written) Fill(tokens_->gradient, 0.0f);
  const SoftCap scale = ScaleOf(spec_);
  if (!scale.identity()) ApplySoftCap(scale, dx);
  EmbeddingBackward(tokens, GatherRows(context, dx), vocab_start_, tokens_->gradient);
}

}  // namespace trimtab
