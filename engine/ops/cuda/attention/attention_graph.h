// Attention as graphs of cuDNN operations, in the form that its fused engines recognise.
//
// The engines match patterns: the operations, their order, the types and strides of what lies
// between them are those of NVIDIA's cudnn-frontend (composite nodes of scaled dot-product
// attention), and a deviation means "no engine".
#pragma once

#include "engine/ops/attention/attention.h"
#include "engine/ops/cuda/cudnn/cudnn_graph.h"

namespace trimtab {

/// A part of an attention call that is computed at once: some sequences, some of the key/value
/// heads with their query heads.
struct AttentionPart {
  int64_t batch = 0;
  int64_t kv_heads = 0;
};

/// The graph and the ids of what it reads and writes. The forward pass writes `out` and
/// `log_sum_exp`; the backward pass reads them and writes the last five.
struct AttentionGraph {
  CudnnGraph graph;
  CudnnGraph::TensorId scale = 0;   // scalar, 1 / sqrt(D)
  CudnnGraph::TensorId hidden = 0;  // scalar, -infinity: the score of a key after the query
  CudnnGraph::TensorId query = 0;
  CudnnGraph::TensorId key = 0;
  CudnnGraph::TensorId value = 0;
  CudnnGraph::TensorId out = 0;
  CudnnGraph::TensorId log_sum_exp = 0;  // fp32 [b, h, T], packed
  CudnnGraph::TensorId one = 0;          // scalar, 1
  CudnnGraph::TensorId dout = 0;
  CudnnGraph::TensorId row_sums = 0;     // fp32 [b, h, T], packed: sums of dout * out
  CudnnGraph::TensorId dquery_sums = 0;  // fp32 [b, h, T, D], packed
  CudnnGraph::TensorId dquery = 0;
  CudnnGraph::TensorId dkey = 0;
  CudnnGraph::TensorId dvalue = 0;
};

/// Graphs of `part` of the call `shape`: strides are those of the whole call's packed qkv, out and
/// their gradients. `type` is bf16 or fp16. Throws CudnnError where cuDNN refuses an operation.
AttentionGraph AttentionForwardGraph(const AttentionShape& shape, const AttentionPart& part,
                                     cudnnDataType_t type);
AttentionGraph AttentionBackwardGraph(const AttentionShape& shape, const AttentionPart& part,
                                      cudnnDataType_t type);

}  // namespace trimtab
