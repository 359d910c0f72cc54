#include "engine/ops/cuda/attention/attention_graph.h"

namespace trimtab {
namespace {

using TensorId = CudnnGraph::TensorId;

// b batch, h query heads, k key/value heads, t sequence, d head size, v that of values.
struct Sizes {
  int64_t b, h, k, t, d, v;
  CudnnDims queries() const { return {b, h, t, d}; }
  CudnnDims keys() const { return {b, k, t, d}; }
  CudnnDims keys_transposed() const { return {b, k, d, t}; }
  CudnnDims values() const { return {b, k, t, v}; }
  CudnnDims values_transposed() const { return {b, k, v, t}; }
  CudnnDims out() const { return {b, h, t, v}; }
  CudnnDims scores() const { return {b, h, t, t}; }
  CudnnDims rows() const { return {b, h, t, 1}; }
};

Sizes SizesOf(const AttentionShape& shape, const AttentionPart& part) {
  return {part.batch,      part.kv_heads * (shape.heads / shape.kv_heads),
          part.kv_heads,   shape.rows.sequence,
          shape.head_size, shape.value_size()};
}

// Strides of heads of `head_size`, whose tokens are `width` elements apart.
CudnnDims TokenStrides(const AttentionShape& shape, int64_t head_size, int64_t width) {
  return {shape.rows.sequence * width, head_size, width, 1};
}
// Of queries and keys in the packed projection, of values there, of out.
CudnnDims HeadStrides(const AttentionShape& s) {
  return TokenStrides(s, s.head_size, s.qkv_size());
}
CudnnDims ValueStrides(const AttentionShape& s) {
  return TokenStrides(s, s.value_size(), s.qkv_size());
}
CudnnDims OutStrides(const AttentionShape& s) {
  return TokenStrides(s, s.value_size(), s.out_size());
}

CudnnDims Transposed(const CudnnDims& x) { return {x[0], x[1], x[3], x[2]}; }

// The scores of the keys that a query must not see become `hidden`.
TensorId CausalMask(AttentionGraph& a, const Sizes& s, TensorId scores) {
  CudnnGraph& g = a.graph;
  const TensorId row = g.Virtual("row index", s.scores(), CUDNN_DATA_INT32);
  g.GenIndex(2, scores, row);
  const TensorId column = g.Virtual("column index", s.scores(), CUDNN_DATA_INT32);
  g.GenIndex(3, scores, column);
  const TensorId visible = g.Virtual("causal mask", s.scores(), CUDNN_DATA_BOOLEAN);
  g.Pointwise(CUDNN_POINTWISE_CMP_GE, row, column, visible, CUDNN_DATA_BOOLEAN);
  const TensorId masked = g.Virtual("masked scores", s.scores());
  g.Select(visible, scores, a.hidden, masked);
  return masked;
}

TensorId ScaledScores(AttentionGraph& a, const Sizes& s) {
  const TensorId raw = a.graph.Virtual("scores", s.scores());
  a.graph.MatMul(a.query, a.key, raw);
  const TensorId scaled = a.graph.Virtual("scaled scores", s.scores());
  a.graph.Pointwise(CUDNN_POINTWISE_MUL, raw, a.scale, scaled);
  return scaled;
}

// x (op) b as a new fp32 tensor of x's dims.
TensorId Binary(AttentionGraph& a, const char* name, cudnnPointwiseMode_t mode,
                const CudnnDims& dims, TensorId x, TensorId b) {
  const TensorId y = a.graph.Virtual(name, dims);
  a.graph.Pointwise(mode, x, b, y);
  return y;
}

TensorId Unary(AttentionGraph& a, const char* name, cudnnPointwiseMode_t mode,
               const CudnnDims& dims, TensorId x) {
  const TensorId y = a.graph.Virtual(name, dims);
  a.graph.Pointwise(mode, x, y);
  return y;
}

// An fp32 [b, h, t, t] tensor as the left factor of a product over queries: transposed, in `type`.
TensorId TransposedScores(AttentionGraph& a, const Sizes& s, const char* name, TensorId x,
                          cudnnDataType_t type) {
  const CudnnDims strides = {s.h * s.t * s.t, s.t * s.t, 1, s.t};
  const TensorId y = a.graph.Virtual(name, s.scores(), strides, type);
  a.graph.Reshape(x, y);
  return y;
}

// left [b, h, t, t] right `dims`, added up over the query heads that share a key/value head.
void SumOverGroup(AttentionGraph& a, const Sizes& s, const char* name, const CudnnDims& dims,
                  TensorId left, TensorId right, TensorId result, cudnnDataType_t type) {
  if (s.h == s.k) {
    a.graph.MatMul(left, right, result);
    return;
  }
  const TensorId all_heads = a.graph.Virtual(name, dims, type);
  a.graph.MatMul(left, right, all_heads);
  a.graph.Reduce(CUDNN_REDUCE_TENSOR_ADD, all_heads, result);
}

}  // namespace

AttentionGraph AttentionForwardGraph(const AttentionShape& shape, const AttentionPart& part,
                                     cudnnDataType_t type) {
  const Sizes s = SizesOf(shape, part);
  const CudnnDims qkv = HeadStrides(shape);
  AttentionGraph a;
  CudnnGraph& g = a.graph;
  a.scale = g.Scalar("scale");
  a.hidden = g.Scalar("minus infinity");
  a.query = g.Real("query", s.queries(), qkv, type);
  a.key = g.Real("key, transposed", s.keys_transposed(), Transposed(qkv), type);
  a.value = g.Real("value", s.values(), ValueStrides(shape), type);
  a.out = g.Real("out", s.out(), OutStrides(shape), type);
  a.log_sum_exp = g.Real("log-sum-exp", s.rows(), {s.h * s.t, s.t, 1, 1}, CUDNN_DATA_FLOAT);

  const TensorId scores = CausalMask(a, s, ScaledScores(a, s));
  const TensorId highest = g.Virtual("row maximum", s.rows());
  g.Reduce(CUDNN_REDUCE_TENSOR_MAX, scores, highest);
  const TensorId shifted =
      Binary(a, "shifted scores", CUDNN_POINTWISE_SUB, s.scores(), scores, highest);
  const TensorId exponentials = Unary(a, "exponentials", CUDNN_POINTWISE_EXP, s.scores(), shifted);
  const TensorId sum = g.Virtual("row sum", s.rows());
  g.Reduce(CUDNN_REDUCE_TENSOR_ADD, exponentials, sum);
  const TensorId log_sum = Unary(a, "log of row sum", CUDNN_POINTWISE_LOG, s.rows(), sum);
  g.Pointwise(CUDNN_POINTWISE_ADD, highest, log_sum, a.log_sum_exp);
  const TensorId probabilities = g.Virtual("probabilities", s.scores(), type);
  g.Pointwise(CUDNN_POINTWISE_DIV, exponentials, sum, probabilities);
  g.MatMul(probabilities, a.value, a.out);
  return a;
}

AttentionGraph AttentionBackwardGraph(const AttentionShape& shape, const AttentionPart& part,
                                      cudnnDataType_t type) {
  const Sizes s = SizesOf(shape, part);
  const CudnnDims qkv = HeadStrides(shape);
  const CudnnDims values = ValueStrides(shape);
  const CudnnDims out = OutStrides(shape);
  const CudnnDims packed_rows = {s.h * s.t, s.t, 1, 1};
  AttentionGraph a;
  CudnnGraph& g = a.graph;
  a.scale = g.Scalar("scale");
  a.hidden = g.Scalar("minus infinity");
  a.one = g.Scalar("one");
  a.query = g.Real("query", s.queries(), qkv, type);
  a.key = g.Real("key, transposed", s.keys_transposed(), Transposed(qkv), type);
  a.value = g.Real("value, transposed", s.values_transposed(), Transposed(values), type);
  a.out = g.Real("out", s.out(), out, type);
  a.dout = g.Real("gradient of out", s.out(), out, type);
  a.log_sum_exp = g.Real("log-sum-exp", s.rows(), packed_rows, CUDNN_DATA_FLOAT);
  a.row_sums = g.Real("row sums", s.rows(), packed_rows, CUDNN_DATA_FLOAT);
  a.dquery_sums =
      g.Real("sums of dquery", s.queries(), {s.h * s.t * s.d, s.t * s.d, s.d, 1}, CUDNN_DATA_FLOAT);
  a.dquery = g.Real("dquery", s.queries(), qkv, type);
  a.dkey = g.Real("dkey", s.keys(), qkv, type);
  a.dvalue = g.Real("dvalue", s.values(), values, type);

  // The softmax's part: row sums of dout * out.
  const TensorId products = g.Virtual("dout * out", s.out(),
                                      {s.h * s.t * s.v, s.t * s.v, s.h * s.v, 1}, CUDNN_DATA_FLOAT);
  g.Pointwise(CUDNN_POINTWISE_MUL, a.dout, a.out, products);
  const TensorId sums = g.Virtual("row sums, unscaled", s.rows());
  g.Reduce(CUDNN_REDUCE_TENSOR_ADD, products, sums);
  g.Pointwise(CUDNN_POINTWISE_MUL, sums, a.one, a.row_sums);

  // Probabilities again, from the log-sum-exp; dvalue.
  const TensorId logs = Binary(a, "log probabilities", CUDNN_POINTWISE_SUB, s.scores(),
                               ScaledScores(a, s), a.log_sum_exp);
  const TensorId probabilities =
      Unary(a, "probabilities", CUDNN_POINTWISE_EXP, s.scores(), CausalMask(a, s, logs));
  SumOverGroup(a, s, "dvalue of all heads", s.out(),
               TransposedScores(a, s, "probabilities, transposed", probabilities, type), a.dout,
               a.dvalue, type);

  // Gradient of the scores; dkey.
  const TensorId dprobabilities = g.Virtual("dprobabilities", s.scores());
  g.MatMul(a.dout, a.value, dprobabilities);
  const TensorId centred = Binary(a, "dprobabilities less row sums", CUDNN_POINTWISE_SUB,
                                  s.scores(), dprobabilities, a.row_sums);
  const TensorId dlogits =
      Binary(a, "dlogits", CUDNN_POINTWISE_MUL, s.scores(), centred, probabilities);
  const TensorId dscores = Binary(a, "dscores", CUDNN_POINTWISE_MUL, s.scores(), dlogits, a.scale);
  SumOverGroup(a, s, "dkey of all heads", s.queries(),
               TransposedScores(a, s, "dscores, transposed", dscores, type), a.query, a.dkey, type);

  // dquery, summed in fp32 over the blocks of keys.
  const TensorId key = g.Virtual("key", s.keys(), qkv, type);
  g.Reshape(a.key, key);
  g.MatMul(dscores, key, a.dquery_sums);
  g.Pointwise(CUDNN_POINTWISE_IDENTITY, a.dquery_sums, a.dquery);
  return a;
}

}  // namespace trimtab
