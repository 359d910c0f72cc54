#include "engine/ops/activation/activation.h"

#include "engine/ops/cpu/activation/activation.h"
#include "engine/ops/cuda_ops.h"
#include "engine/ops/dispatch.h"
#include "engine/ops/elementwise/widen.h"

namespace trimtab {
namespace {

// Values moved per element of the output.
OpRecord Record(OpKind kind, int64_t rows, int64_t columns, DType dtype,
                int64_t values_per_element) {
  return {.kind = kind,
          .dtype = dtype,
          .dims = {rows, columns},
          .bytes = rows * columns * values_per_element * SizeOf(dtype)};
}

}  // namespace

OpRecord ActivationForwardRecord(int64_t rows, int64_t columns, DType dtype) {
  return Record(OpKind::kActivationForward, rows, columns, dtype, 2);
}
OpRecord ActivationBackwardRecord(int64_t rows, int64_t columns, DType dtype) {
  return Record(OpKind::kActivationBackward, rows, columns, dtype, 3);
}
OpRecord GatedActivationForwardRecord(int64_t rows, int64_t columns, DType dtype) {
  return Record(OpKind::kGatedActivationForward, rows, columns, dtype, 3);
}
OpRecord GatedActivationBackwardRecord(int64_t rows, int64_t columns, DType dtype) {
  return Record(OpKind::kGatedActivationBackward, rows, columns, dtype, 5);
}

void ActivationForward(ActivationFunction function, const Tensor& x, Tensor& y) {
  constexpr OpKind kOp = OpKind::kActivationForward;
  Device& device = x.device();
  CheckPlainFloat(kOp, "x", x);
  CheckOperand(kOp, "y", y, x.shape(), device, x.dtype());
  const OpScope scope(device, ActivationForwardRecord(Rows(x), Columns(x), x.dtype()));
  if (device.kind() == DeviceKind::kCuda) {
    return CudaKernel(device, kOp, &CudaOps::activation_forward)(function, x, y);
  }
  if (device.kind() != DeviceKind::kCpu) return;
  ActivationForwardCpu(device.threads(), function, x.numel(), F32In(x).data(), F32Out(y).data());
}

void ActivationBackward(ActivationFunction function, const Tensor& x, const Tensor& dy,
                        Tensor& dx) {
  constexpr OpKind kOp = OpKind::kActivationBackward;
  Device& device = x.device();
  CheckPlainFloat(kOp, "x", x);
  CheckOperand(kOp, "dy", dy, x.shape(), device, x.dtype());
  CheckOperand(kOp, "dx", dx, x.shape(), device, x.dtype());
  const OpScope scope(device, ActivationBackwardRecord(Rows(x), Columns(x), x.dtype()));
  if (device.kind() == DeviceKind::kCuda) {
    return CudaKernel(device, kOp, &CudaOps::activation_backward)(function, x, dy, dx);
  }
  if (device.kind() != DeviceKind::kCpu) return;
  ActivationBackwardCpu(device.threads(), function, x.numel(), F32In(x).data(), F32In(dy).data(),
                        F32Out(dx).data());
}

void GatedActivationForward(ActivationFunction function, const Tensor& gate_up, Tensor& y) {
  constexpr OpKind kOp = OpKind::kGatedActivationForward;
  CheckMatrix(kOp, "y", y);
  CheckPlainFloat(kOp, "y", y);
  Device& device = y.device();
  const int64_t rows = y.dim(0);
  const int64_t columns = y.dim(1);
  CheckOperand(kOp, "gate_up", gate_up, {rows, 2 * columns}, device, y.dtype());
  const OpScope scope(device, GatedActivationForwardRecord(rows, columns, y.dtype()));
  if (device.kind() == DeviceKind::kCuda) {
    return CudaKernel(device, kOp, &CudaOps::gated_activation_forward)(function, gate_up, y);
  }
  if (device.kind() != DeviceKind::kCpu) return;
  GatedActivationForwardCpu(device.threads(), function, rows, columns, F32In(gate_up).data(),
                            F32Out(y).data());
}

void GatedActivationBackward(ActivationFunction function, const Tensor& gate_up, const Tensor& dy,
                             Tensor& dgate_up) {
  constexpr OpKind kOp = OpKind::kGatedActivationBackward;
  CheckMatrix(kOp, "dy", dy);
  CheckPlainFloat(kOp, "dy", dy);
  Device& device = dy.device();
  const int64_t rows = dy.dim(0);
  const int64_t columns = dy.dim(1);
  CheckOperand(kOp, "gate_up", gate_up, {rows, 2 * columns}, device, dy.dtype());
  CheckOperand(kOp, "dgate_up", dgate_up, {rows, 2 * columns}, device, dy.dtype());
  const OpScope scope(device, GatedActivationBackwardRecord(rows, columns, dy.dtype()));
  if (device.kind() == DeviceKind::kCuda) {
    return CudaKernel(device, kOp, &CudaOps::gated_activation_backward)(function, gate_up, dy,
                                                                        dgate_up);
  }
  if (device.kind() != DeviceKind::kCpu) return;
  GatedActivationBackwardCpu(device.threads(), function, rows, columns, F32In(gate_up).data(),
                             F32In(dy).data(), F32Out(dgate_up).data());
}

}  // namespace trimtab
