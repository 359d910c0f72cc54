#include "engine/ops/activation.h"

#include "engine/ops/activation_cpu.h"
#include "engine/ops/dispatch.h"

namespace trimtab {
namespace {

// fp32 values moved per element of the output.
OpRecord Record(OpKind kind, int64_t rows, int64_t columns, int64_t values_per_element) {
  return {.kind = kind,
          .dims = {rows, columns},
          .bytes = rows * columns * values_per_element * SizeOf(DType::kF32)};
}

}  // namespace

OpRecord GeluForwardRecord(int64_t rows, int64_t columns) {
  return Record(OpKind::kGeluForward, rows, columns, 2);
}
OpRecord GeluBackwardRecord(int64_t rows, int64_t columns) {
  return Record(OpKind::kGeluBackward, rows, columns, 3);
}
OpRecord SwiGluForwardRecord(int64_t rows, int64_t columns) {
  return Record(OpKind::kSwiGluForward, rows, columns, 3);
}
OpRecord SwiGluBackwardRecord(int64_t rows, int64_t columns) {
  return Record(OpKind::kSwiGluBackward, rows, columns, 5);
}

void GeluForward(const Tensor& x, Tensor& y) {
  constexpr OpKind kOp = OpKind::kGeluForward;
  Device& device = x.device();
  CheckOperand(kOp, "x", x, x.shape(), device);
  CheckOperand(kOp, "y", y, x.shape(), device);
  const OpScope scope(device, GeluForwardRecord(Rows(x), Columns(x)));
  if (!RunsOnCpu(device, kOp)) return;
  GeluForwardCpu(device.threads(), x.numel(), x.f32(), y.f32());
}

void GeluBackward(const Tensor& x, const Tensor& dy, Tensor& dx) {
  constexpr OpKind kOp = OpKind::kGeluBackward;
  Device& device = x.device();
  CheckOperand(kOp, "x", x, x.shape(), device);
  CheckOperand(kOp, "dy", dy, x.shape(), device);
  CheckOperand(kOp, "dx", dx, x.shape(), device);
  const OpScope scope(device, GeluBackwardRecord(Rows(x), Columns(x)));
  if (!RunsOnCpu(device, kOp)) return;
  GeluBackwardCpu(device.threads(), x.numel(), x.f32(), dy.f32(), dx.f32());
}

void SwiGluForward(const Tensor& gate_up, Tensor& y) {
  constexpr OpKind kOp = OpKind::kSwiGluForward;
  CheckMatrix(kOp, "y", y);
  Device& device = y.device();
  const int64_t rows = y.dim(0);
  const int64_t columns = y.dim(1);
  CheckOperand(kOp, "gate_up", gate_up, {rows, 2 * columns}, device);
  CheckOperand(kOp, "y", y, {rows, columns}, device);
  const OpScope scope(device, SwiGluForwardRecord(rows, columns));
  if (!RunsOnCpu(device, kOp)) return;
  SwiGluForwardCpu(device.threads(), rows, columns, gate_up.f32(), y.f32());
}

void SwiGluBackward(const Tensor& gate_up, const Tensor& dy, Tensor& dgate_up) {
  constexpr OpKind kOp = OpKind::kSwiGluBackward;
  CheckMatrix(kOp, "dy", dy);
  Device& device = dy.device();
  const int64_t rows = dy.dim(0);
  const int64_t columns = dy.dim(1);
  CheckOperand(kOp, "gate_up", gate_up, {rows, 2 * columns}, device);
  CheckOperand(kOp, "dy", dy, {rows, columns}, device);
  CheckOperand(kOp, "dgate_up", dgate_up, {rows, 2 * columns}, device);
  const OpScope scope(device, SwiGluBackwardRecord(rows, columns));
  if (!RunsOnCpu(device, kOp)) return;
  SwiGluBackwardCpu(device.threads(), rows, columns, gate_up.f32(), dy.f32(), dgate_up.f32());
}

}  // namespace trimtab
