#include "engine/ops/activation/gate_rows.h"

#include "engine/ops/cpu/activation/gate_rows.h"
#include "engine/ops/cuda_ops.h"
#include "engine/ops/dispatch.h"
#include "engine/ops/elementwise/widen.h"

namespace trimtab {
namespace {

OpRecord Record(OpKind kind, int64_t rows, int64_t columns, DType dtype, int64_t values,
                int64_t gates) {
  return {.kind = kind,
          .dtype = dtype,
          .dims = {rows, columns},
          .bytes = rows * (values * columns * SizeOf(dtype) + gates * SizeOf(DType::kF32))};
}

}  // namespace

OpRecord GateRowsRecord(int64_t rows, int64_t columns, DType dtype) {
  return Record(OpKind::kGateRows, rows, columns, dtype, 2, 1);
}
OpRecord GateRowsBackwardRecord(int64_t rows, int64_t columns, DType dtype) {
  return Record(OpKind::kGateRowsBackward, rows, columns, dtype, 3, 2);
}

void GateRows(const Tensor& gate, const Tensor& x, Tensor& y) {
  constexpr OpKind kOp = OpKind::kGateRows;
  CheckMatrix(kOp, "x", x);
  CheckPlainFloat(kOp, "x", x);
  Device& device = x.device();
  CheckOperand(kOp, "gate", gate, {x.dim(0), 1}, device);
  CheckOperand(kOp, "y", y, x.shape(), device, x.dtype());
  const OpScope scope(device, GateRowsRecord(x.dim(0), x.dim(1), x.dtype()));
  if (device.kind() == DeviceKind::kCuda) {
    return CudaKernel(device, kOp, &CudaOps::gate_rows)(gate, x, y);
  }
  if (device.kind() != DeviceKind::kCpu) return;
  GateRowsCpu(device.threads(), x.dim(0), x.dim(1), gate.f32(), F32In(x).data(), F32Out(y).data());
}

void GateRowsBackward(const Tensor& gate, const Tensor& x, const Tensor& dy, Tensor& dx,
                      Tensor& dgate) {
  constexpr OpKind kOp = OpKind::kGateRowsBackward;
  CheckMatrix(kOp, "x", x);
  CheckPlainFloat(kOp, "x", x);
  Device& device = x.device();
  CheckOperand(kOp, "gate", gate, {x.dim(0), 1}, device);
  CheckOperand(kOp, "dy", dy, x.shape(), device, x.dtype());
  CheckOperand(kOp, "dx", dx, x.shape(), device, x.dtype());
  CheckOperand(kOp, "dgate", dgate, {x.dim(0), 1}, device);
  const OpScope scope(device, GateRowsBackwardRecord(x.dim(0), x.dim(1), x.dtype()));
  if (device.kind() == DeviceKind::kCuda) {
    return CudaKernel(device, kOp, &CudaOps::gate_rows_backward)(gate, x, dy, dx, dgate);
  }
  if (device.kind() != DeviceKind::kCpu) return;
  GateRowsBackwardCpu(device.threads(), x.dim(0), x.dim(1), gate.f32(), F32In(x).data(),
                      F32In(dy).data(), F32Out(dx).data(), dgate.f32());
}

}  // namespace trimtab
