#include "cost_model/block_cost.h"

#include "cost_model/block_pass.h"
#include "engine/ops/activation.h"
#include "engine/ops/attention.h"
#include "engine/ops/cross_entropy.h"
#include "engine/ops/elementwise.h"
#include "engine/ops/embedding.h"
#include "engine/ops/fused_fp8.h"

namespace trimtab {
namespace {

void AddTotal(CommTotal& total, const CommTotal& other, int64_t times) {
  total.count += times * other.count;
  total.bytes += times * other.bytes;
}

AttentionShape AttentionOf(const ModelConfig& model, const BlockShape& shape) {
  return {.batch = shape.micro_batch,
          .sequence = shape.sequence,
          .heads = model.num_heads / shape.tp,
          .kv_heads = model.num_kv_heads / shape.tp,
          .head_size = model.head_size()};
}

void LayerForward(Pass& pass, const ModelConfig& model, const BlockShape& shape) {
  const AttentionShape attention = AttentionOf(model, shape);
  const DType type = shape.types.activations;
  const int64_t tokens = pass.tokens();
  pass.NormForward(kQkv);
  pass.ColumnForward(kQkv, attention.qkv_size());
  if (model.position == PositionKind::kRope) pass.Op(RopeRecord(attention, type));
  const int64_t out_size = attention.heads * attention.head_size;
  pass.Keep(pass.Bytes(tokens * out_size) + kFp32Bytes * tokens * attention.heads);
  const int64_t workspace = AttentionForwardWorkspaceBytes(attention, shape.executor);
  pass.Take(workspace);
  pass.Op(AttentionForwardRecord(attention, type));
  pass.Give(workspace);
  pass.RowForward(kProj, out_size);
  pass.Op(AddRecord(pass.rows() * model.hidden_size, type));

  const int64_t ffn = model.ffn_hidden_size / shape.tp;
  const bool swiglu = model.activation == ActivationKind::kSwiGlu;
  pass.NormForward(kFc1);
  pass.ColumnForward(kFc1, model.fc1_size() / shape.tp);
  if (pass.FusesInput(kFc2)) {
    pass.TakeInputCopies(ffn);
    pass.Op(swiglu ? SwiGluForwardFp8Record(tokens, ffn, type, {})
                   : GeluForwardFp8Record(tokens, ffn, type, {}));
  } else {
    pass.Keep(pass.Bytes(tokens * ffn));
    pass.Op(swiglu ? SwiGluForwardRecord(tokens, ffn, type) : GeluForwardRecord(tokens, ffn, type));
  }
  pass.RowForward(kFc2, ffn);
  // The attention's own output stays for its backward pass; the activation only as an input.
  if (!pass.FusesInput(kFc2) && !pass.KeepsInput(kFc2)) pass.Drop(pass.Bytes(tokens * ffn));
  pass.Op(AddRecord(pass.rows() * model.hidden_size, type));
}

void LayerBackward(Pass& pass, const ModelConfig& model, const BlockShape& shape) {
  const DType type = shape.types.activations;
  const int64_t tokens = pass.tokens();
  const int64_t ffn = model.ffn_hidden_size / shape.tp;
  const int64_t fc1 = model.fc1_size() / shape.tp;
  pass.RowBackward(kFc2, ffn);
  const bool swiglu = model.activation == ActivationKind::kSwiGlu;
  const bool fused = pass.FusesGradient(kFc1);
  if (fused) {
    pass.TakeGradientCopies(fc1);
    pass.Op(swiglu
                ? SwiGluBackwardFp8Record(tokens, ffn, type, {})
                : GeluBackwardFp8Record(tokens, ffn, type, {}, model.bias, shape.types.gradients));
    pass.Give(pass.Bytes(tokens * ffn));
  } else if (swiglu) {
    pass.Take(pass.Bytes(tokens * fc1));
    pass.Op(SwiGluBackwardRecord(tokens, ffn, type));
    pass.Give(pass.Bytes(tokens * ffn));
  } else {
    pass.Op(GeluBackwardRecord(tokens, ffn, type));
  }
  pass.ColumnBackward(kFc1, fc1, model.bias);
  if (!fused) pass.Give(pass.Bytes(tokens * fc1));
  pass.NormBackward();
  pass.Give(pass.stream_bytes());

  const AttentionShape attention = AttentionOf(model, shape);
  const int64_t out_size = attention.heads * attention.head_size;
  const int64_t dqkv_bytes = pass.Bytes(tokens * attention.qkv_size());
  pass.Take(dqkv_bytes);
  pass.RowBackward(kProj, out_size);
  const int64_t workspace = AttentionBackwardWorkspaceBytes(attention, shape.executor);
  pass.Take(workspace);
  pass.Op(AttentionBackwardRecord(attention, type));
  pass.Give(workspace + pass.Bytes(tokens * out_size));
  if (model.position == PositionKind::kRope) pass.Op(RopeRecord(attention, type));
  pass.ColumnBackward(kQkv, attention.qkv_size(), model.bias);
  pass.Give(dqkv_bytes);
  pass.NormBackward();
  pass.Give(pass.stream_bytes());
}

int64_t LocalVocab(const ModelConfig& model, const BlockShape& shape) {
  return model.padded_vocab_size(shape.tp) / shape.tp;
}

void HeadForward(Pass& pass, const ModelConfig& model, const BlockShape& shape) {
  const DType type = shape.types.activations;
  const int64_t tokens = pass.tokens();
  const int64_t vocab = LocalVocab(model, shape);
  pass.NormForward(kOutputLayer);
  pass.ColumnForward(kOutputLayer, vocab);
  const int64_t loss_bytes = kFp32Bytes * tokens * 4;  // row maxima, two sums, losses
  pass.Take(loss_bytes);
  pass.Op(CrossEntropyMaxRecord(tokens, vocab, type));
  pass.AllReduce(kFp32Bytes * tokens);
  pass.Op(CrossEntropySumRecord(tokens, vocab, type));
  pass.AllReduce(kFp32Bytes * tokens * 2);
  pass.Op(CrossEntropyGradRecord(tokens, vocab, type));
  pass.Op(SumRecord(tokens));
  pass.Give(loss_bytes);
}

void HeadBackward(Pass& pass, const ModelConfig& model, const BlockShape& shape) {
  pass.ColumnBackward(kOutputLayer, LocalVocab(model, shape), /*bias=*/false);
  pass.Take(pass.stream_bytes());
  pass.Op(FillRecord(pass.rows() * model.hidden_size, shape.types.activations));
  pass.NormBackward();
  pass.Give(pass.stream_bytes());
}

void EmbeddingForward(Pass& pass, const ModelConfig& model, const BlockShape& shape) {
  pass.TakeProduct();
  pass.Op(EmbeddingForwardRecord(pass.tokens(), model.hidden_size, shape.types.activations));
  pass.ReduceProduct();
  if (model.position == PositionKind::kLearned) {
    pass.Op(PositionForwardRecord(pass.rows(), model.hidden_size, shape.types.activations));
  }
}

void EmbeddingBackward(Pass& pass, const ModelConfig& model, const BlockShape& shape,
                       bool accumulate) {
  const TrainingTypes& types = shape.types;
  if (model.position == PositionKind::kLearned) {
    if (!accumulate) {
      pass.Op(FillRecord(model.max_sequence_length * model.hidden_size, types.gradients));
    }
    pass.Op(
        PositionBackwardRecord(pass.rows(), model.hidden_size, types.activations, types.gradients));
  }
  if (!accumulate && !model.tied_embeddings) {
    pass.Op(FillRecord(LocalVocab(model, shape) * model.hidden_size, types.gradients));
  }
  const int64_t gathered = pass.GatherRows();
  pass.Op(EmbeddingBackwardRecord(pass.tokens(), model.hidden_size, types.activations,
                                  types.gradients));
  pass.Give(gathered);
}

/// Runs the passes of a block. `output_bytes` of what Forward leaves in use are its output.
template <typename Forward, typename Backward>
BlockCost Measure(const ModelConfig& model, const BlockShape& shape, const Pricer& pricer,
                  int64_t output_bytes, const Forward& forward, const Backward& backward) {
  BlockCost block;
  Pass forward_pass(model, shape, pricer, false);
  forward(forward_pass);
  block.forward = forward_pass.cost();
  block.kept_bytes = forward_pass.activations().now - output_bytes;
  block.forward_peak = forward_pass.memory().peak;
  block.forward_activations_peak = forward_pass.activations().peak;
  for (const bool accumulate : {false, true}) {
    Pass pass(model, shape, pricer, accumulate);
    backward(pass, accumulate);
    (accumulate ? block.backward_accumulate : block.backward_first) = pass.cost();
    block.backward_peak = pass.memory().peak;
  }
  return block;
}

int64_t StreamBytes(const ModelConfig& model, const BlockShape& shape) {
  return SizeOf(shape.types.activations) * shape.rows() * model.hidden_size;
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
      model, shape, pricer, StreamBytes(model, shape),
      [&](Pass& pass) { EmbeddingForward(pass, model, shape); },
      [&](Pass& pass, bool accumulate) { EmbeddingBackward(pass, model, shape, accumulate); });
}

BlockCost LayerCost(const ModelConfig& model, const BlockShape& shape, const Pricer& pricer) {
  return Measure(
      model, shape, pricer, StreamBytes(model, shape),
      [&](Pass& pass) { LayerForward(pass, model, shape); },
      [&](Pass& pass, bool) { LayerBackward(pass, model, shape); });
}

BlockCost HeadCost(const ModelConfig& model, const BlockShape& shape, const Pricer& pricer) {
  return Measure(
      model, shape, pricer, 0, [&](Pass& pass) { HeadForward(pass, model, shape); },
      [&](Pass& pass, bool) { HeadBackward(pass, model, shape); });
}

}  // namespace trimtab
