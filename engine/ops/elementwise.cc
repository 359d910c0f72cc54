#include "engine/ops/elementwise.h"

#include "engine/ops/dispatch.h"
#include "engine/ops/elementwise_cpu.h"

namespace trimtab {
namespace {

OpRecord Record(OpKind kind, int64_t numel, int64_t values_per_element) {
  return {.kind = kind, .dims = {numel}, .bytes = numel * values_per_element * SizeOf(DType::kF32)};
}

}  // namespace

OpRecord AddRecord(int64_t numel) { return Record(OpKind::kAdd, numel, 3); }
OpRecord CopyRecord(int64_t numel) { return Record(OpKind::kCopy, numel, 2); }
OpRecord FillRecord(int64_t numel) { return Record(OpKind::kFill, numel, 1); }
OpRecord SumSquaresRecord(int64_t numel) { return Record(OpKind::kSumSquares, numel, 1); }

OpRecord AddBiasRecord(int64_t rows, int64_t columns) {
  return {.kind = OpKind::kAddBias,
          .dims = {rows, columns},
          .bytes = (2 * rows * columns + columns) * SizeOf(DType::kF32)};
}

void Add(const Tensor& x, Tensor& y) {
  constexpr OpKind kOp = OpKind::kAdd;
  Device& device = y.device();
  CheckOperand(kOp, "y", y, y.shape(), device);
  TRIMTAB_ASSERT(x.numel() == y.numel(), "add: x has {} elements, y {}", x.numel(), y.numel());
  CheckOperand(kOp, "x", x, x.shape(), device);
  const OpScope scope(device, AddRecord(y.numel()));
  if (!RunsOnCpu(device, kOp)) return;
  AddCpu(device.threads(), y.numel(), x.f32(), y.f32());
}

void Copy(const Tensor& source, Tensor& destination) {
  constexpr OpKind kOp = OpKind::kCopy;
  Device& device = destination.device();
  TRIMTAB_ASSERT(source.numel() == destination.numel(),
                 "copy: source has {} elements, destination {}", source.numel(),
                 destination.numel());
  CheckOperand(kOp, "source", source, source.shape(), device);
  CheckOperand(kOp, "destination", destination, destination.shape(), device);
  const OpScope scope(device, CopyRecord(source.numel()));
  if (!RunsOnCpu(device, kOp)) return;
  CopyCpu(device.threads(), source.numel(), source.f32(), destination.f32());
}

void Fill(Tensor& x, float value) {
  constexpr OpKind kOp = OpKind::kFill;
  Device& device = x.device();
  CheckOperand(kOp, "x", x, x.shape(), device);
  const OpScope scope(device, FillRecord(x.numel()));
  if (!RunsOnCpu(device, kOp)) return;
  FillCpu(device.threads(), x.numel(), value, x.f32());
}

void AddBias(const Tensor& bias, Tensor& x) {
  constexpr OpKind kOp = OpKind::kAddBias;
  CheckMatrix(kOp, "x", x);
  Device& device = x.device();
  CheckOperand(kOp, "x", x, x.shape(), device);
  CheckOperand(kOp, "bias", bias, {x.dim(1)}, device);
  const OpScope scope(device, AddBiasRecord(x.dim(0), x.dim(1)));
  if (!RunsOnCpu(device, kOp)) return;
  AddBiasCpu(device.threads(), x.dim(0), x.dim(1), bias.f32(), x.f32());
}

double SumSquares(const Tensor& x) {
  constexpr OpKind kOp = OpKind::kSumSquares;
  Device& device = x.device();
  CheckOperand(kOp, "x", x, x.shape(), device);
  const OpScope scope(device, SumSquaresRecord(x.numel()));
  if (!RunsOnCpu(device, kOp)) return 0;
  return SumSquaresCpu(device.threads(), x.numel(), x.f32());
}

double Sum(const Tensor& x) {
  Device& device = x.device();
  CheckOperand(OpKind::kSumSquares, "x", x, x.shape(), device);
  if (!RunsOnCpu(device, OpKind::kSumSquares)) return 0;
  return SumCpu(device.threads(), x.numel(), x.f32());
}

}  // namespace trimtab
