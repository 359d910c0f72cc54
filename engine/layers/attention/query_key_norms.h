// RMSNorms of queries and keys before they are rotated: over each head, or over all of a token's
// queries and over all of its keys. Weights are whole on every tensor-parallel rank: for heads they
// are the same, of whole norms a rank reads what its heads need.
#pragma once

#include "engine/config/model/layer_spec.h"
#include "engine/layers/layer_context.h"
#include "engine/ops/attention/attention.h"
#include "engine/ops/norm/whole_norm.h"
#include "engine/parameters/parameter.h"

namespace trimtab {

/// What QueryKeyNorms keeps between Forward and Backward.
struct QueryKeyNormsSaved {
  Tensor input;  // [N, (H + 2*KV)*D / tp]
  /// fp32: 1 / root mean square of each head [N, (H + KV) / tp]; of whole norms the sums of squares
  /// of queries and keys over all ranks [N, 2].
  Tensor statistics;
};

class QueryKeyNorms {
 public:
  /// Declares NAME.q_layernorm and NAME.k_layernorm, `name` being that of the attention.
  QueryKeyNorms(ParameterStore& store, const ModuleName& name, const AttentionSpec& spec);

  /// Moves qkv of `shape` to saved.input and puts its normed value, in new memory, in its place.
  void Forward(const LayerContext& context, const AttentionShape& shape, Tensor& qkv,
               QueryKeyNormsSaved& saved) const;
  /// Turns dqkv, the gradient of what Forward made, into that of saved.input, in place. Adds to the
  /// gradients of the weights, or overwrites them when not `accumulate`.
  void Backward(const LayerContext& context, const AttentionShape& shape,
                const QueryKeyNormsSaved& saved, Tensor& dqkv, bool accumulate) const;

 private:
  bool whole() const { return spec_.query_key_norm == QueryKeyNorm::kWhole; }
  /// Elements of the query norm's weight before those that this rank reads, and of the key norm's.
  int64_t FirstQuery(const LayerContext& context) const;
  int64_t FirstKey(const LayerContext& context) const;
  WholeNorms NormsOf(const LayerContext& context, const AttentionShape& shape) const;
  /// Backward but for the weights: returns this rank's share of their gradients, of the queries'
  /// norm, then of the keys'.
  Tensor HeadsBackward(const LayerContext& context, const AttentionShape& shape,
                       const QueryKeyNormsSaved& saved, Tensor& dqkv) const;
  Tensor WholeBackward(const LayerContext& context, const AttentionShape& shape,
                       const QueryKeyNormsSaved& saved, Tensor& dqkv) const;

  AttentionSpec spec_;
  Parameter* query_ = nullptr;
  Parameter* key_ = nullptr;
};

}  // namespace trimtab
