#include "cost_model/block_cost.h"

#include "engine/ops/activation.h"
#include "engine/ops/attention.h"
#include "engine/ops/cross_entropy.h"
#include "engine/ops/elementwise.h"
#include "engine/ops/embedding.h"
#include "engine/ops/gemm.h"
#include "engine/ops/norm.h"

namespace trimtab {
namespace {

constexpr int64_t kElement = 4;  // the engine computes in fp32; token ids are int32

void AddTotal(CommTotal& total, const CommTotal& other, int64_t times) {
  total.count += times * other.count;
  total.bytes += times * other.bytes;
}

/// One pass through a block: counts ops and messages, follows the memory.
class Pass {
 public:
  Pass(const ModelConfig& model, const BlockShape& shape, const Pricer& pricer, bool accumulate)
      : model_(model), shape_(shape), pricer_(pricer), accumulate_(accumulate) {}

  const Cost& cost() const { return cost_; }
  MemoryLevel& memory() { return memory_; }

  int64_t tokens() const { return shape_.tokens(); }
  int64_t rows() const { return shape_.rows(); }
  int64_t hidden() const { return model_.hidden_size; }
  /// Bytes of a [rows, C] tensor of the residual stream, and of a [N, C] one.
  int64_t stream_bytes() const { return kElement * rows() * hidden(); }
  int64_t full_bytes() const { return kElement * tokens() * hidden(); }

  void Op(const OpRecord& op) {
    cost_.compute_s += pricer_.Seconds(op);
    cost_.flops += op.flops;
    ++cost_.ops;
  }

  /// Product of a weight gradient [m, n] over k tokens.
  void WeightGradient(int64_t m, int64_t n) { Op(GemmRecord(m, n, tokens(), accumulate_)); }
  void Product(int64_t n, int64_t k) { Op(GemmRecord(tokens(), n, k, false)); }

  void AllReduce(int64_t bytes) {
    if (shape_.tp > 1) Message(CollectiveKind::kAllReduce, bytes, cost_.tp_all_reduce);
  }

  /// GatherRows: takes a [N, C] tensor under sequence parallelism; the caller gives it back.
  int64_t GatherRows() {
    if (!shape_.sequence_parallel) return 0;
    memory_.Take(full_bytes());
    Message(CollectiveKind::kAllGather, full_bytes(), cost_.tp_all_gather);
    return full_bytes();
  }

  /// ReduceRows: turns a partial [N, C] in use into the [rows, C] it leaves in use.
  void ReduceRows() {
    if (!shape_.sequence_parallel) return AllReduce(full_bytes());
    memory_.Take(stream_bytes());
    Message(CollectiveKind::kReduceScatter, full_bytes(), cost_.tp_reduce_scatter);
    memory_.Give(full_bytes());
  }

  /// Norm::Forward: leaves its output and statistics in use.
  void NormForward() {
    const bool rms = model_.norm == NormKind::kRmsNorm;
    memory_.Take(stream_bytes() + NormStatisticsBytes());
    Op(rms ? RmsNormForwardRecord(rows(), hidden()) : LayerNormForwardRecord(rows(), hidden()));
  }
  int64_t NormStatisticsBytes() const {
    return kElement * rows() * (model_.norm == NormKind::kRmsNorm ? 1 : 2);
  }
  void NormBackward() {
    const bool rms = model_.norm == NormKind::kRmsNorm;
    Op(rms ? RmsNormBackwardRecord(rows(), hidden()) : LayerNormBackwardRecord(rows(), hidden()));
  }

  /// ColumnParallelLinear::Forward to `out` features of this rank: leaves its output in use.
  void ColumnForward(int64_t out) {
    const int64_t gathered = GatherRows();
    memory_.Take(kElement * tokens() * out);
    Product(out, hidden());
    memory_.Give(gathered);
  }
  /// ColumnParallelLinear::Backward: leaves the [rows, C] gradient of its input in use.
  void ColumnBackward(int64_t out, bool bias) {
    const int64_t gathered = GatherRows();
    WeightGradient(out, hidden());
    memory_.Give(gathered);
    if (bias) Op(BiasBackwardRecord(tokens(), out));
    memory_.Take(full_bytes());
    Product(hidden(), out);
    ReduceRows();
  }

  /// RowParallelLinear::Forward from `in` features of this rank: leaves [rows, C] in use.
  void RowForward(int64_t in) {
    memory_.Take(full_bytes());
    Product(hidden(), in);
    ReduceRows();
    if (model_.bias && shape_.tp > 1) Op(AddBiasRecord(rows(), hidden()));
  }
  /// RowParallelLinear::Backward: leaves [N, in] in use.
  void RowBackward(int64_t in) {
    if (model_.bias) Op(BiasBackwardRecord(rows(), hidden()));
    const int64_t gathered = GatherRows();
    WeightGradient(hidden(), in);
    memory_.Take(kElement * tokens() * in);
    Product(in, hidden());
    memory_.Give(gathered);
  }

 private:
  void Message(CollectiveKind kind, int64_t bytes, CommTotal& total) {
    cost_.tp_s += pricer_.Seconds({kind, GroupKind::kTensor, shape_.tp, bytes}, /*stride=*/1);
    ++total.count;
    total.bytes += bytes;
  }

  const ModelConfig& model_;
  const BlockShape& shape_;
  const Pricer& pricer_;
  bool accumulate_;
  Cost cost_;
  MemoryLevel memory_;
};

AttentionShape AttentionOf(const ModelConfig& model, const BlockShape& shape) {
  return {.batch = shape.micro_batch,
          .sequence = shape.sequence,
          .heads = model.num_heads / shape.tp,
          .kv_heads = model.num_kv_heads / shape.tp,
          .head_size = model.head_size()};
}

void LayerForward(Pass& pass, const ModelConfig& model, const BlockShape& shape) {
  const AttentionShape attention = AttentionOf(model, shape);
  MemoryLevel& memory = pass.memory();
  const int64_t tokens = pass.tokens();
  pass.NormForward();
  pass.ColumnForward(attention.qkv_size());
  if (model.position == PositionKind::kRope) pass.Op(RopeRecord(attention));
  const int64_t out_size = attention.heads * attention.head_size;
  memory.Take(kElement * tokens * (out_size + attention.heads));
  const Executor executor = {DeviceKind::kCpu, shape.threads};
  const int64_t workspace = AttentionForwardWorkspaceBytes(attention, executor);
  memory.Take(workspace);
  pass.Op(AttentionForwardRecord(attention));
  memory.Give(workspace);
  pass.RowForward(out_size);
  pass.Op(AddRecord(pass.rows() * model.hidden_size));

  const int64_t ffn = model.ffn_hidden_size / shape.tp;
  pass.NormForward();
  pass.ColumnForward(model.fc1_size() / shape.tp);
  memory.Take(kElement * tokens * ffn);
  pass.Op(model.activation == ActivationKind::kSwiGlu ? SwiGluForwardRecord(tokens, ffn)
                                                      : GeluForwardRecord(tokens, ffn));
  pass.RowForward(ffn);
  pass.Op(AddRecord(pass.rows() * model.hidden_size));
}

void LayerBackward(Pass& pass, const ModelConfig& model, const BlockShape& shape) {
  MemoryLevel& memory = pass.memory();
  const int64_t tokens = pass.tokens();
  const int64_t ffn = model.ffn_hidden_size / shape.tp;
  const int64_t fc1 = model.fc1_size() / shape.tp;
  pass.RowBackward(ffn);
  if (model.activation == ActivationKind::kSwiGlu) {
    memory.Take(kElement * tokens * fc1);
    pass.Op(SwiGluBackwardRecord(tokens, ffn));
    memory.Give(kElement * tokens * ffn);
  } else {
    pass.Op(GeluBackwardRecord(tokens, ffn));
  }
  pass.ColumnBackward(fc1, model.bias);
  memory.Give(kElement * tokens * fc1);
  pass.NormBackward();
  memory.Give(pass.stream_bytes());

  const AttentionShape attention = AttentionOf(model, shape);
  const int64_t out_size = attention.heads * attention.head_size;
  const int64_t dqkv_bytes = kElement * tokens * attention.qkv_size();
  memory.Take(dqkv_bytes);
  pass.RowBackward(out_size);
  const Executor executor = {DeviceKind::kCpu, shape.threads};
  const int64_t workspace = AttentionBackwardWorkspaceBytes(attention, executor);
  memory.Take(workspace);
  pass.Op(AttentionBackwardRecord(attention));
  memory.Give(workspace + kElement * tokens * out_size);
  if (model.position == PositionKind::kRope) pass.Op(RopeRecord(attention));
  pass.ColumnBackward(attention.qkv_size(), model.bias);
  memory.Give(dqkv_bytes);
  pass.NormBackward();
  memory.Give(pass.stream_bytes());
}

int64_t LocalVocab(const ModelConfig& model, const BlockShape& shape) {
  return model.padded_vocab_size(shape.tp) / shape.tp;
}

void HeadForward(Pass& pass, const ModelConfig& model, const BlockShape& shape) {
  const int64_t tokens = pass.tokens();
  const int64_t vocab = LocalVocab(model, shape);
  pass.NormForward();
  pass.ColumnForward(vocab);
  // Row maxima, two sums, losses; the scale of gradients and the sum of losses.
  const int64_t loss_bytes = kElement * (tokens * 4 + 2);
  pass.memory().Take(loss_bytes);
  pass.Op(CrossEntropyMaxRecord(tokens, vocab));
  pass.AllReduce(kElement * tokens);
  pass.Op(CrossEntropySumRecord(tokens, vocab));
  pass.AllReduce(kElement * tokens * 2);
  pass.Op(CrossEntropyGradRecord(tokens, vocab));
  pass.Op(SumRecord(tokens));
  pass.memory().Give(loss_bytes);
}

void HeadBackward(Pass& pass, const ModelConfig& model, const BlockShape& shape) {
  pass.ColumnBackward(LocalVocab(model, shape), /*bias=*/false);
  pass.memory().Take(pass.stream_bytes());
  pass.Op(FillRecord(pass.rows() * model.hidden_size));
  pass.NormBackward();
  pass.memory().Give(pass.stream_bytes());
}

void EmbeddingForward(Pass& pass, const ModelConfig& model) {
  pass.memory().Take(pass.full_bytes());
  pass.Op(EmbeddingForwardRecord(pass.tokens(), model.hidden_size));
  pass.ReduceRows();
  if (model.position == PositionKind::kLearned) {
    pass.Op(PositionForwardRecord(pass.rows(), model.hidden_size));
  }
}

void EmbeddingBackward(Pass& pass, const ModelConfig& model, const BlockShape& shape,
                       bool accumulate) {
  if (model.position == PositionKind::kLearned) {
    if (!accumulate) pass.Op(FillRecord(model.max_sequence_length * model.hidden_size));
    pass.Op(PositionBackwardRecord(pass.rows(), model.hidden_size));
  }
  if (!accumulate && !model.tied_embeddings) {
    pass.Op(FillRecord(LocalVocab(model, shape) * model.hidden_size));
  }
  const int64_t gathered = pass.GatherRows();
  pass.Op(EmbeddingBackwardRecord(pass.tokens(), model.hidden_size));
  pass.memory().Give(gathered);
}

/// Runs the passes of a block. `output_bytes` of what Forward leaves in use are its output.
template <typename Forward, typename Backward>
BlockCost Measure(const ModelConfig& model, const BlockShape& shape, const Pricer& pricer,
                  int64_t output_bytes, const Forward& forward, const Backward& backward) {
  BlockCost block;
  Pass forward_pass(model, shape, pricer, false);
  forward(forward_pass);
  block.forward = forward_pass.cost();
  block.kept_bytes = forward_pass.memory().now - output_bytes;
  block.forward_peak = forward_pass.memory().peak;
  for (const bool accumulate : {false, true}) {
    Pass pass(model, shape, pricer, accumulate);
    backward(pass, accumulate);
    (accumulate ? block.backward_accumulate : block.backward_first) = pass.cost();
    block.backward_peak = pass.memory().peak;
  }
  return block;
}

}  // namespace

void Cost::Add(const Cost& other, int64_t times) {
  const auto factor = static_cast<double>(times);
  compute_s += factor * other.compute_s;
  tp_s += factor * other.tp_s;
  flops += times * other.flops;
  ops += times * other.ops;
  AddTotal(tp_all_reduce, other.tp_all_reduce, times);
  AddTotal(tp_reduce_scatter, other.tp_reduce_scatter, times);
  AddTotal(tp_all_gather, other.tp_all_gather, times);
}

BlockCost EmbeddingCost(const ModelConfig& model, const BlockShape& shape, const Pricer& pricer) {
  return Measure(
      model, shape, pricer, kElement * shape.rows() * model.hidden_size,
      [&](Pass& pass) { EmbeddingForward(pass, model); },
      [&](Pass& pass, bool accumulate) { EmbeddingBackward(pass, model, shape, accumulate); });
}

BlockCost LayerCost(const ModelConfig& model, const BlockShape& shape, const Pricer& pricer) {
  return Measure(
      model, shape, pricer, kElement * shape.rows() * model.hidden_size,
      [&](Pass& pass) { LayerForward(pass, model, shape); },
      [&](Pass& pass, bool) { LayerBackward(pass, model, shape); });
}

BlockCost HeadCost(const ModelConfig& model, const BlockShape& shape, const Pricer& pricer) {
  return Measure(
      model, shape, pricer, 0, [&](Pass& pass) { HeadForward(pass, model, shape); },
      [&](Pass& pass, bool) { HeadBackward(pass, model, shape); });
}

}  // namespace trimtab
