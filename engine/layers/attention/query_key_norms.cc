#include "engine/layers/attention/query_key_norms.h"

#include <utility>

#include "engine/layers/norm.h"
#include "engine/ops/elementwise/elementwise.h"
#include "engine/ops/norm/head_norm.h"

namespace trimtab {
namespace {

Parameter& DeclareQueryKeyNorm(ParameterStore& store, const ModuleName& name, const NormSpec& spec,
                               int64_t size) {
  return store.Declare({.name = name + ".weight",
                        .rows = size,
                        .is_matrix = false,
                        .tensor_parallel = false,
                        .init = NormWeightInit(spec),
                        .partition = WholePartition(size, 1)});
}

}  // namespace

QueryKeyNorms::QueryKeyNorms(ParameterStore& store, const ModuleName& name,
                             const AttentionSpec& spec)
    : spec_(spec) {
  const int64_t queries = whole() ? spec.heads : 1;
  const int64_t keys = whole() ? spec.kv_heads : 1;
  query_ = &DeclareQueryKeyNorm(store, name + ".q_layernorm", spec.norm, queries * spec.head_size);
  key_ = &DeclareQueryKeyNorm(store, name + ".k_layernorm", spec.norm, keys * spec.head_size);
}

int64_t QueryKeyNorms::FirstQuery(const LayerContext& context) const {
  return context.parallel.tp_rank * (spec_.heads / context.tp()) * spec_.head_size;
}

int64_t QueryKeyNorms::FirstKey(const LayerContext& context) const {
  return context.parallel.tp_rank * spec_.kv_heads / context.tp() * spec_.head_size;
}

WholeNorms QueryKeyNorms::NormsOf(const LayerContext& context, const AttentionShape& shape) const {
  const int64_t head_size = shape.head_size;
  return {.query_weight = query_->weight.Slice(FirstQuery(context), {shape.heads * head_size}),
          .key_weight = key_->weight.Slice(FirstKey(context), {shape.kv_heads * head_size}),
          .query_count = context.tp() * shape.heads * head_size,
          .key_count = context.tp() * shape.kv_heads * head_size,
          .options = NormOptionsOf(spec_.norm)};
}

void QueryKeyNorms::Forward(const LayerContext& context, const AttentionShape& shape, Tensor& qkv,
                            QueryKeyNormsSaved& saved) const {
  const NormOptions options = NormOptionsOf(spec_.norm);
  saved.input = std::exchange(qkv, context.New(qkv.shape(), MemoryTag::kActivations));
  if (!whole()) {
    saved.statistics =
        context.NewF32({shape.tokens(), shape.heads + shape.kv_heads}, MemoryTag::kActivations);
    return HeadNormForward(shape, saved.input, query_->weight, key_->weight, options, qkv,
                           saved.statistics);
  }
  saved.statistics = context.NewF32({shape.tokens(), 2}, MemoryTag::kActivations);
  WholeNormSquares(shape, saved.input, saved.statistics);
  if (context.tp() > 1) context.parallel.tp->AllReduce(saved.statistics);
  WholeNormForward(shape, saved.input, NormsOf(context, shape), saved.statistics, qkv);
}

Tensor QueryKeyNorms::HeadsBackward(const LayerContext& context, const AttentionShape& shape,
                                    const QueryKeyNormsSaved& saved, Tensor& dqkv) const {
  Tensor dweights = Tensor::Empty(context.device, {2, shape.head_size}, context.types.gradients,
                                  MemoryTag::kWorkspace);
  HeadNormBackward(shape, saved.input, query_->weight, key_->weight, saved.statistics,
                   spec_.norm.weight_plus_one, dqkv, dweights);
  return dweights;
}

Tensor QueryKeyNorms::WholeBackward(const LayerContext& context, const AttentionShape& shape,
                                    const QueryKeyNormsSaved& saved, Tensor& dqkv) const {
  const WholeNorms norms = NormsOf(context, shape);
  const auto vector = [&](int64_t size) {
    return Tensor::Empty(context.device, {size}, context.types.gradients, MemoryTag::kWorkspace);
  };
  const int64_t queries = shape.heads * shape.head_size;
  const int64_t keys = shape.kv_heads * shape.head_size;
  Tensor own = vector(queries + keys);
  Tensor slopes = context.NewF32({shape.tokens(), 2}, MemoryTag::kWorkspace);
  WholeNormSlopes(shape, saved.input, norms, saved.statistics, dqkv, slopes, own);
  if (context.tp() > 1) context.parallel.tp->AllReduce(slopes);
  WholeNormBackward(shape, saved.input, norms, saved.statistics, slopes, dqkv);
  if (context.tp() == 1) return own;
  const int64_t all_queries = query_->weight.numel();
  Tensor dweights = vector(all_queries + key_->weight.numel());
  Fill(dweights, 0.0f);
  Tensor its_queries = dweights.Slice(FirstQuery(context), {queries});
  Tensor its_keys = dweights.Slice(all_queries + FirstKey(context), {keys});
  Copy(own.Slice(0, {queries}), its_queries);
  Copy(own.Slice(queries, {keys}), its_keys);
  return dweights;
}

void QueryKeyNorms::Backward(const LayerContext& context, const AttentionShape& shape,
                             const QueryKeyNormsSaved& saved, Tensor& dqkv, bool accumulate) const {
  Tensor dweights = whole() ? WholeBackward(context, shape, saved, dqkv)
                            : HeadsBackward(context, shape, saved, dqkv);
  // Each rank has seen its own heads. With sequence parallelism, what is the same on all ranks is
  // summed at the end of the step.
  const bool trained = query_->spec.trainable || key_->spec.trainable;
  if (trained && context.tp() > 1 && !context.sequence_parallel()) {
    context.parallel.tp->AllReduce(dweights);
  }
  for (Parameter* norm : {query_, key_}) {
    if (!norm->spec.trainable) continue;
    const int64_t first = norm == query_ ? 0 : query_->numel();
    const Tensor dweight = dweights.Slice(first, {norm->numel()});
    if (accumulate) {
      Add(dweight, norm->gradient);
    } else {
      Copy(dweight, norm->gradient);
    }
  }
}

}  // namespace trimtab
