#include "engine/ops/moe/sequence_routing.h"

#include "engine/ops/cpu/moe/sequence_routing.h"
#include "engine/ops/cuda_ops.h"
#include "engine/ops/dispatch.h"

namespace trimtab {

OpRecord SinkhornChooseRecord(int64_t rows, int64_t experts) {
  return {.kind = OpKind::kSinkhornChoose,
          .dims = {rows, experts, 1},
          .bytes = rows * (experts * SizeOf(DType::kF32) + SizeOf(DType::kI32))};
}
OpRecord DropTokensRecord(int64_t rows, int64_t experts, int64_t topk) {
  return {.kind = OpKind::kDropTokens,
          .dims = {rows, experts, topk},
          .bytes = rows * topk * (SizeOf(DType::kF32) + 2 * SizeOf(DType::kI32))};
}

void SinkhornChoose(const SequenceRows& sequences, const Tensor& logits, Tensor& choice) {
  constexpr OpKind kOp = OpKind::kSinkhornChoose;
  CheckMatrix(kOp, "logits", logits);
  Device& device = logits.device();
  const int64_t rows = sequences.rows();
  const int64_t experts = logits.dim(1);
  CheckOperand(kOp, "logits", logits, {rows, experts}, device);
  CheckOperand(kOp, "choice", choice, {rows, 1}, device, DType::kI32);
  const OpScope scope(device, SinkhornChooseRecord(rows, experts));
  if (device.kind() == DeviceKind::kCuda) {
    return CudaKernel(device, kOp, &CudaOps::sinkhorn_choose)(sequences, logits, choice);
  }
  if (device.kind() != DeviceKind::kCpu) return;
  SinkhornChooseCpu(device.threads(), sequences, experts, logits.f32(), choice.i32());
}

void DropTokens(const SequenceRows& sequences, int64_t experts, int64_t capacity, DropPolicy policy,
                const Tensor& choice, const Tensor& weights, Tensor& kept) {
  constexpr OpKind kOp = OpKind::kDropTokens;
  CheckMatrix(kOp, "choice", choice);
  Device& device = choice.device();
  const int64_t rows = sequences.rows();
  const int64_t topk = choice.dim(1);
  CheckOperand(kOp, "choice", choice, {rows, topk}, device, DType::kI32);
  CheckOperand(kOp, "weights", weights, {rows, topk}, device);
  CheckOperand(kOp, "kept", kept, {rows, topk}, device, DType::kI32);
  const OpScope scope(device, DropTokensRecord(rows, experts, topk));
  if (device.kind() == DeviceKind::kCuda) {
    return CudaKernel(device, kOp, &CudaOps::drop_tokens)(sequences, experts, capacity, policy,
                                                          choice, weights, kept);
  }
  if (device.kind() != DeviceKind::kCpu) return;
  DropTokensCpu(device.threads(), sequences, experts, topk, capacity, policy, choice.i32(),
                weights.f32(), kept.i32());
}

}  // namespace trimtab
