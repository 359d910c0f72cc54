#include "cost_model/block_pass.h"

#include "engine/ops/elementwise.h"
#include "engine/ops/fused_fp8.h"
#include "engine/ops/gemm.h"
#include "engine/ops/norm.h"
#include "engine/ops/quantize.h"

namespace trimtab {
namespace {

constexpr DType kFp8Forward = DType::kF8E4M3;
constexpr DType kFp8Backward = DType::kF8E5M2;

}  // namespace

void Pass::Message(CollectiveKind kind, int64_t bytes, CommTotal& total) {
  cost_.tp_s += pricer_.Seconds({kind, GroupKind::kTensor, shape_.tp, bytes}, /*stride=*/1);
  ++total.count;
  total.bytes += bytes;
}

void Pass::AllReduce(int64_t bytes) {
  if (shape_.tp > 1) Message(CollectiveKind::kAllReduce, bytes, cost_.tp_all_reduce);
}

int64_t Pass::GatherRows() {
  if (!shape_.sequence_parallel) return 0;
  Take(full_bytes());
  Message(CollectiveKind::kAllGather, full_bytes(), cost_.tp_all_gather);
  return full_bytes();
}

void Pass::TakeProduct() {
  if (shape_.sequence_parallel) {
    Take(full_bytes());
  } else {
    Keep(full_bytes());
  }
}

void Pass::ReduceProduct() {
  if (!shape_.sequence_parallel) return AllReduce(full_bytes());
  Keep(stream_bytes());
  Message(CollectiveKind::kReduceScatter, full_bytes(), cost_.tp_reduce_scatter);
  Give(full_bytes());
}

bool Pass::FusesInput(LinearKind kind) const {
  if (!Fp8(kind) || shape_.current_scaling || kind == kProj) return false;
  return RowParallel(kind) || !shape_.sequence_parallel;
}

bool Pass::FusesGradient(LinearKind kind) const {
  if (!Fp8(kind) || shape_.current_scaling || kind != kFc1) return false;
  return model_.activation == ActivationKind::kGelu || !model_.bias;
}

void Pass::TakeInputCopies(int64_t columns) {
  Take(tokens() * columns);  // one byte an element
  Keep(tokens() * columns);
}

void Pass::NormForward(LinearKind next) {
  const bool rms = model_.norm == NormKind::kRmsNorm;
  const DType type = shape_.types.activations;
  Keep(kFp32Bytes * rows() * (rms ? 1 : 2));
  if (FusesInput(next)) {
    TakeInputCopies(hidden());
    Op(rms ? RmsNormForwardFp8Record(rows(), hidden(), type, true)
           : LayerNormForwardFp8Record(rows(), hidden(), type, true));
    return;
  }
  Keep(stream_bytes());
  Op(rms ? RmsNormForwardRecord(rows(), hidden(), type)
         : LayerNormForwardRecord(rows(), hidden(), type));
}

void Pass::NormBackward() {
  const bool rms = model_.norm == NormKind::kRmsNorm;
  const TrainingTypes& types = shape_.types;
  Op(rms ? RmsNormBackwardRecord(rows(), hidden(), types.activations, types.gradients)
         : LayerNormBackwardRecord(rows(), hidden(), types.activations, types.gradients));
}

void Pass::Quantize(int64_t columns, const Quantized& how) {
  const DType type = shape_.types.activations;
  if (shape_.current_scaling && !how.keep_scale) {
    Op(AmaxRecord(tokens() * columns, type));
    if (how.sharded) AllReduce(kFp32Bytes);
    Op(Fp8ScalesRecord(1, 1));
  }
  Op(QuantizeRecord(tokens(), columns, type, how.rows, how.transposed));
}

void Pass::ForwardProduct(LinearKind kind, int64_t in, int64_t out) {
  const TrainingTypes& types = shape_.types;
  if (!Fp8(kind)) {
    Op(GemmRecord(tokens(), out, in, false, {types.activations, types.weights, types.activations}));
    return;
  }
  const GemmTypes gemm_types = {kFp8Forward, kFp8Forward, types.activations};
  if (FusesInput(kind)) return Op(GemmRecord(tokens(), out, in, false, gemm_types));
  const int64_t copy_bytes = tokens() * in;
  const bool keep_copy = !KeepsShard(kind);
  Take(copy_bytes);
  if (keep_copy) Keep(copy_bytes);
  Quantize(in, {.transposed = keep_copy, .sharded = RowParallel(kind)});
  Op(GemmRecord(tokens(), out, in, false, gemm_types));
  Give(copy_bytes);
}

void Pass::BackwardProducts(LinearKind kind, int64_t in, int64_t out) {
  const TrainingTypes& types = shape_.types;
  const bool fp8 = Fp8(kind);
  const int64_t dy_copies = fp8 ? 2 * tokens() * out : 0;
  if (fp8 && !FusesGradient(kind)) {
    Take(dy_copies);
    Quantize(out, {.sharded = !RowParallel(kind)});
  }

  const bool gather = !RowParallel(kind) && KeepsInput(kind);
  const int64_t gathered = gather ? GatherRows() : 0;
  if (fp8) {
    const int64_t x_copy = KeepsShard(kind) ? tokens() * in : 0;
    Take(x_copy);
    if (x_copy > 0) Quantize(in, {.rows = false, .keep_scale = true});
    Op(GemmRecord(out, in, tokens(), accumulate_, {kFp8Backward, kFp8Forward, types.gradients}));
    Give(x_copy);
  } else {
    Op(GemmRecord(out, in, tokens(), accumulate_,
                  {types.activations, types.activations, types.gradients}));
  }
  Give(gathered);

  Take(Bytes(tokens() * in));
  Op(GemmRecord(tokens(), in, out, false,
                fp8 ? GemmTypes{kFp8Backward, kFp8Forward, types.activations}
                    : GemmTypes{types.activations, types.weights, types.activations}));
  Give(dy_copies);
}

void Pass::ColumnForward(LinearKind kind, int64_t out) {
  const int64_t gathered = GatherRows();
  Keep(Bytes(tokens() * out));
  ForwardProduct(kind, hidden(), out);
  Give(gathered);
  if (FusesInput(kind)) {
    Give(tokens() * hidden());
  } else if (!KeepsInput(kind)) {
    Drop(stream_bytes());
  }
}

void Pass::ColumnBackward(LinearKind kind, int64_t out, bool bias) {
  if (bias && !FusesGradient(kind)) {
    Op(BiasBackwardRecord(tokens(), out, shape_.types.activations, shape_.types.gradients));
  }
  BackwardProducts(kind, hidden(), out);
  if (!shape_.sequence_parallel) return AllReduce(full_bytes());
  Take(stream_bytes());
  Message(CollectiveKind::kReduceScatter, full_bytes(), cost_.tp_reduce_scatter);
  Give(full_bytes());
}

void Pass::RowForward(LinearKind kind, int64_t in) {
  TakeProduct();
  ForwardProduct(kind, in, hidden());
  ReduceProduct();
  if (model_.bias && shape_.tp > 1) Op(AddBiasRecord(rows(), hidden(), shape_.types.activations));
  if (FusesInput(kind)) Give(tokens() * in);
}

void Pass::RowBackward(LinearKind kind, int64_t in) {
  if (model_.bias) {
    Op(BiasBackwardRecord(rows(), hidden(), shape_.types.activations, shape_.types.gradients));
  }
  const int64_t gathered = GatherRows();
  BackwardProducts(kind, in, hidden());
  Give(gathered);
}

}  // namespace trimtab
