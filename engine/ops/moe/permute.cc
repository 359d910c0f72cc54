#include "engine/ops/moe/permute.h"

#include "engine/ops/cpu/moe/permute.h"
#include "engine/ops/cuda_ops.h"
#include "engine/ops/dispatch.h"
#include "engine/ops/elementwise/widen.h"

namespace trimtab {
namespace {

constexpr int64_t kId = 4;
constexpr int64_t kFloat = 4;

void CheckIds(OpKind op, const char* name, const Tensor& ids, const Shape& shape, Device& device) {
  CheckOperand(op, name, ids, shape, device, DType::kI32);
}

}  // namespace

OpRecord SortByExpertRecord(int64_t rows, int64_t experts, int64_t tokens, int64_t topk) {
  return {.kind = OpKind::kSortByExpert,
          .dtype = DType::kI32,
          .dims = {tokens, experts, topk, rows},
          .bytes = (2 * tokens * topk + rows) * kId};
}
OpRecord OrderArrivalsRecord(int64_t rows, int64_t ranks, int64_t experts) {
  return {.kind = OpKind::kOrderArrivals,
          .dtype = DType::kI32,
          .dims = {rows, ranks, experts},
          .bytes = ranks * experts * kFloat + 2 * rows * kId};
}
OpRecord PermuteRecord(int64_t rows, int64_t columns, int64_t tokens, int64_t topk, DType dtype) {
  return {.kind = OpKind::kPermute,
          .dtype = dtype,
          .dims = {rows, columns, tokens, topk},
          .bytes = (tokens + rows) * columns * SizeOf(dtype) + rows * kId};
}
OpRecord UnpermuteRecord(int64_t rows, int64_t columns, int64_t tokens, int64_t topk, bool weighted,
                         DType dtype) {
  return {.kind = OpKind::kUnpermute,
          .dtype = dtype,
          .dims = {rows, columns, tokens, topk},
          .bytes = (tokens + rows) * columns * SizeOf(dtype) +
                   tokens * topk * (kId + (weighted ? kFloat : 0))};
}
OpRecord UnpermuteBackwardRecord(int64_t rows, int64_t columns, int64_t tokens, int64_t topk,
                                 DType dtype) {
  return {.kind = OpKind::kUnpermuteBackward,
          .dtype = dtype,
          .dims = {rows, columns, tokens, topk},
          .bytes = (tokens + 2 * rows) * columns * SizeOf(dtype) +
                   tokens * topk * (kId + 2 * kFloat) + rows * kId};
}

void SortByExpert(const Tensor& choice, const ExpertRange& experts, int64_t padded_rows,
                  Tensor& row_of, Tensor& choice_of) {
  constexpr OpKind kOp = OpKind::kSortByExpert;
  CheckMatrix(kOp, "choice", choice);
  Device& device = choice.device();
  const Shape shape = choice.shape();
  const int64_t rows = choice_of.numel();
  CheckIds(kOp, "choice", choice, shape, device);
  CheckIds(kOp, "row_of", row_of, shape, device);
  CheckIds(kOp, "choice_of", choice_of, {rows}, device);
  TRIMTAB_ASSERT(padded_rows == 0 || rows == experts.count * padded_rows,
                 "{}: {} rows, expected {} of each of {} experts", Name(kOp), rows, padded_rows,
                 experts.count);
  const OpScope scope(device, SortByExpertRecord(rows, experts.count, shape[0], shape[1]));
  if (device.kind() == DeviceKind::kCuda) {
    return CudaKernel(device, kOp, &CudaOps::sort_by_expert)(choice, experts, padded_rows, row_of,
                                                             choice_of);
  }
  if (device.kind() != DeviceKind::kCpu) return;
  SortByExpertCpu(choice.numel(), choice.i32(), experts.first, experts.count, padded_rows, rows,
                  row_of.i32(), choice_of.i32());
}

void OrderArrivals(const Tensor& counts, int64_t lead, const ExpertRange& experts,
                   Tensor& by_expert, Tensor& by_rank) {
  constexpr OpKind kOp = OpKind::kOrderArrivals;
  CheckMatrix(kOp, "counts", counts);
  Device& device = counts.device();
  const int64_t ranks = counts.dim(0);
  const int64_t rows = by_expert.numel();
  CheckOperand(kOp, "counts", counts, counts.shape(), device);
  CheckIds(kOp, "by_expert", by_expert, {rows}, device);
  CheckIds(kOp, "by_rank", by_rank, {rows}, device);
  TRIMTAB_ASSERT(lead >= 1 && ranks % lead == 0, "{}: {} ranks in steps of {}", Name(kOp), ranks,
                 lead);
  TRIMTAB_ASSERT(experts.first + experts.count <= counts.dim(1), "{}: experts {} to {} of {}",
                 Name(kOp), experts.first, experts.first + experts.count, counts.dim(1));
  const OpScope scope(device, OrderArrivalsRecord(rows, ranks, experts.count));
  if (device.kind() == DeviceKind::kCuda) {
    return CudaKernel(device, kOp, &CudaOps::order_arrivals)(counts, lead, experts, by_expert,
                                                             by_rank);
  }
  if (device.kind() != DeviceKind::kCpu) return;
  const int64_t came =
      OrderArrivalsCpu({.ranks = ranks, .lead = lead, .all_experts = counts.dim(1)}, experts.first,
                       experts.count, rows, counts.f32(), by_expert.i32(), by_rank.i32());
  TRIMTAB_ASSERT(came == rows, "{}: {} rows came, expected {}", Name(kOp), came, rows);
}

void Permute(const Tensor& x, const Tensor& choice_of, int64_t topk, Tensor& rows) {
  constexpr OpKind kOp = OpKind::kPermute;
  CheckMatrix(kOp, "x", x);
  CheckMatrix(kOp, "rows", rows);
  CheckPlainFloat(kOp, "x", x);
  Device& device = x.device();
  const int64_t columns = x.dim(1);
  CheckOperand(kOp, "rows", rows, {rows.dim(0), columns}, device, x.dtype());
  CheckIds(kOp, "choice_of", choice_of, {rows.dim(0)}, device);
  const OpScope scope(device, PermuteRecord(rows.dim(0), columns, x.dim(0), topk, x.dtype()));
  if (device.kind() == DeviceKind::kCuda) {
    return CudaKernel(device, kOp, &CudaOps::permute)(x, choice_of, topk, rows);
  }
  if (device.kind() != DeviceKind::kCpu) return;
  PermuteCpu(device.threads(), rows.dim(0), columns * SizeOf(x.dtype()), x.raw(), choice_of.i32(),
             topk, rows.raw());
}

void Unpermute(const Tensor& rows, const Tensor& row_of, const Tensor& weights, Tensor& y) {
  constexpr OpKind kOp = OpKind::kUnpermute;
  CheckMatrix(kOp, "rows", rows);
  CheckMatrix(kOp, "y", y);
  CheckMatrix(kOp, "row_of", row_of);
  CheckPlainFloat(kOp, "y", y);
  Device& device = y.device();
  const int64_t tokens = y.dim(0);
  const int64_t columns = y.dim(1);
  const int64_t topk = row_of.dim(1);
  CheckOperand(kOp, "rows", rows, {rows.dim(0), columns}, device, y.dtype());
  CheckIds(kOp, "row_of", row_of, {tokens, topk}, device);
  if (weights.defined()) CheckOperand(kOp, "weights", weights, {tokens, topk}, device);
  const OpScope scope(
      device, UnpermuteRecord(rows.dim(0), columns, tokens, topk, weights.defined(), y.dtype()));
  if (device.kind() == DeviceKind::kCuda) {
    return CudaKernel(device, kOp, &CudaOps::unpermute)(rows, row_of, weights, y);
  }
  if (device.kind() != DeviceKind::kCpu) return;
  UnpermuteCpu(device.threads(), tokens, columns, topk, F32In(rows).data(), row_of.i32(),
               weights.defined() ? weights.f32() : nullptr, F32Out(y).data());
}

void UnpermuteBackward(const Tensor& dy, const Tensor& rows, const Tensor& row_of,
                       const Tensor& choice_of, const Tensor& weights, Tensor& drows,
                       Tensor& dweights) {
  constexpr OpKind kOp = OpKind::kUnpermuteBackward;
  CheckMatrix(kOp, "dy", dy);
  CheckMatrix(kOp, "rows", rows);
  CheckMatrix(kOp, "row_of", row_of);
  CheckPlainFloat(kOp, "dy", dy);
  Device& device = dy.device();
  const int64_t tokens = dy.dim(0);
  const int64_t columns = dy.dim(1);
  const int64_t topk = row_of.dim(1);
  CheckOperand(kOp, "rows", rows, {rows.dim(0), columns}, device, dy.dtype());
  CheckOperand(kOp, "drows", drows, rows.shape(), device, dy.dtype());
  CheckIds(kOp, "row_of", row_of, {tokens, topk}, device);
  CheckIds(kOp, "choice_of", choice_of, {rows.dim(0)}, device);
  CheckOperand(kOp, "weights", weights, {tokens, topk}, device);
  CheckOperand(kOp, "dweights", dweights, {tokens, topk}, device);
  const OpScope scope(device,
                      UnpermuteBackwardRecord(rows.dim(0), columns, tokens, topk, dy.dtype()));
  if (device.kind() == DeviceKind::kCuda) {
    return CudaKernel(device, kOp, &CudaOps::unpermute_backward)(dy, rows, row_of, choice_of,
                                                                 weights, drows, dweights);
  }
  if (device.kind() != DeviceKind::kCpu) return;
  const F32In dy32(dy);
  UnpermuteRowsBackwardCpu(device.threads(), rows.dim(0), columns, topk, dy32.data(),
                           choice_of.i32(), weights.f32(), F32Out(drows).data());
  UnpermuteWeightsBackwardCpu(device.threads(), tokens, columns, topk, dy32.data(),
                              F32In(rows).data(), row_of.i32(), dweights.f32());
}

}  // namespace trimtab
