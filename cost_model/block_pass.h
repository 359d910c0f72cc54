// One pass through a block of the model: counts its ops and messages, prices them, follows the
// memory. The vocabulary in which block_cost.cc describes engine/layers.
#pragma once

#include <cstdint>

#include "cost_model/block_cost.h"

namespace trimtab {

inline constexpr int64_t kFp32Bytes = 4;  // of an element of statistics and losses

/// The head's product, which never computes in fp8.
inline constexpr LinearKind kOutputLayer = kLinearKindCount;

class Pass {
 public:
  /// `accumulate`: weight gradients are added to. Keeps references to all arguments.
  Pass(const ModelConfig& model, const BlockShape& shape, const Pricer& pricer, bool accumulate)
      : model_(model), shape_(shape), pricer_(pricer), accumulate_(accumulate) {}

  const Cost& cost() const { return cost_; }
  /// Of everything, and of what is allocated as an activation.
  const MemoryLevel& memory() const { return memory_; }
  const MemoryLevel& activations() const { return activations_; }

  int64_t tokens() const { return shape_.tokens(); }
  int64_t rows() const { return shape_.rows(); }
  int64_t hidden() const { return model_.hidden_size; }
  /// Bytes of so many elements of an activation.
  int64_t Bytes(int64_t numel) const { return SizeOf(shape_.types.activations) * numel; }
  /// Bytes of a [rows, C] tensor of the residual stream, and of a [N, C] one.
  int64_t stream_bytes() const { return Bytes(rows() * hidden()); }
  int64_t full_bytes() const { return Bytes(tokens() * hidden()); }

  /// Workspace that comes and goes; activations likewise.
  void Take(int64_t bytes) { memory_.Take(bytes); }
  void Give(int64_t bytes) { memory_.Give(bytes); }
  void Keep(int64_t bytes) {
    memory_.Take(bytes);
    activations_.Take(bytes);
  }
  void Drop(int64_t bytes) {
    memory_.Give(bytes);
    activations_.Give(bytes);
  }

  void Op(const OpRecord& op) {
    cost_.compute_s += pricer_.Seconds(op);
    cost_.flops += op.flops;
    ++cost_.ops;
  }
  void AllReduce(int64_t bytes);

  /// GatherRows: takes a [N, C] tensor under sequence parallelism; the caller gives it back.
  int64_t GatherRows();
  /// The [N, C] result of a row-parallel product or of the embedding, an activation unless sequence
  /// parallelism reduces it into one; and that reduction.
  void TakeProduct();
  void ReduceProduct();

  /// Norm::Forward before the linear layer `next`: leaves its output and statistics in use.
  void NormForward(LinearKind next);
  void NormBackward();

  /// Whether a linear layer keeps its input as it is, rather than a transposed fp8 copy.
  bool KeepsInput(LinearKind kind) const { return !Fp8(kind) || KeepsShard(kind); }

  /// Whether a fused op writes the input of a linear layer in fp8, or the gradient of its output.
  bool FusesInput(LinearKind kind) const;
  bool FusesGradient(LinearKind kind) const;
  /// The copies of [N, columns] that such an op writes: in use until the layer has taken them. The
  /// transposed copy of an input is kept.
  void TakeInputCopies(int64_t columns);
  void TakeGradientCopies(int64_t columns) { Take(2 * tokens() * columns); }

  /// ColumnParallelLinear::Forward to `out` features of this rank, from the output of a norm:
  /// leaves its own output in use, and its input if it keeps that.
  void ColumnForward(LinearKind kind, int64_t out);
  /// ColumnParallelLinear::Backward: leaves the [rows, C] gradient of its input in use.
  void ColumnBackward(LinearKind kind, int64_t out, bool bias);
  /// RowParallelLinear::Forward from `in` features of this rank: leaves [rows, C] in use. Its input
  /// is the caller's, unless it was fused.
  void RowForward(LinearKind kind, int64_t in);
  /// RowParallelLinear::Backward: leaves [N, in] in use.
  void RowBackward(LinearKind kind, int64_t in);

 private:
  bool Fp8(LinearKind kind) const {
    return kind != kOutputLayer && shape_.types.fp8 && shape_.fp8[static_cast<size_t>(kind)];
  }
  /// A sequence-parallel shard is kept, and gathered again, rather than the whole input.
  bool KeepsShard(LinearKind kind) const {
    return shape_.sequence_parallel && (kind == kQkv || kind == kFc1);
  }
  static bool RowParallel(LinearKind kind) { return kind == kProj || kind == kFc2; }
  /// LinearProducts::Forward: y [N, out] from x [N, in].
  void ForwardProduct(LinearKind kind, int64_t in, int64_t out);
  /// LinearProducts::Backward, both products, the input gathered again where its shard was kept;
  /// dx [N, in] is in use afterwards.
  void BackwardProducts(LinearKind kind, int64_t in, int64_t out);
  /// The copies that Fp8State::Quantize makes of [N, columns]. `sharded`: each tp rank has a part;
  /// `keep_scale`: the scale stands already.
  struct Quantized {
    bool rows = true;
    bool transposed = true;
    bool sharded = false;
    bool keep_scale = false;
  };
  void Quantize(int64_t columns, const Quantized& how);
  void Message(CollectiveKind kind, int64_t bytes, CommTotal& total);

  const ModelConfig& model_;
  const BlockShape& shape_;
  const Pricer& pricer_;
  bool accumulate_;
  Cost cost_;
  MemoryLevel memory_;
  MemoryLevel activations_;
};

}  // namespace trimtab
