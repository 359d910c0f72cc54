#include "engine/ops/activation.h"

#include "engine/ops/activation_cpu.h"
#include "engine/ops/cuda_ops.h"
#include "engine/ops/dispatch.h"
#include "engine/ops/widen.h"

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

OpRecord GeluForwardRecord(int64_t rows, int64_t columns, DType dtype) {
  return Record(OpKind::kGeluForward, rows, columns, dtype, 2);
}
OpRecord GeluBackwardRecord(int64_t rows, int64_t columns, DType dtype) {
  return Record(OpKind::kGeluBackward, rows, columns, dtype, 3);
}
OpRecord SwiGluForwardRecord(int64_t rows, int64_t columns, DType dtype) {
  return Record(OpKind::kSwiGluForward, rows, columns, dtype, 3);
}
OpRecord SwiGluBackwardRecord(int64_t rows, int64_t columns, DType dtype) {
  return Record(OpKind::kSwiGluBackward, rows, columns, dtype, 5);
}

void GeluForward(const Tensor& x, Tensor& y) {
  constexpr OpKind kOp = OpKind::kGeluForward;
  Device& device = x.device();
  CheckPlainFloat(kOp, "x", x);
  CheckOperand(kOp, "y", y, x.shape(), device, x.dtype());
  const OpScope scope(device, GeluForwardRecord(Rows(x), Columns(x), x.dtype()));
  if (device.kind() == DeviceKind::kCuda) {
    return CudaKernel(device, kOp, &CudaOps::gelu_forward)(x, y);
  }
  if (device.kind() != DeviceKind::kCpu) return;
  GeluForwardCpu(device.threads(), x.numel(), F32In(x).data(), F32Out(y).data());
}

void GeluBackward(const Tensor& x, const Tensor& dy, Tensor& dx) {
  constexpr OpKind kOp = OpKind::kGeluBackward;
  Device& device = x.device();
  CheckPlainFloat(kOp, "x", x);
  CheckOperand(kOp, "dy", dy, x.shape(), device, x.dtype());
  CheckOperand(kOp, "dx", dx, x.shape(), device, x.dtype());
  const OpScope scope(device, GeluBackwardRecord(Rows(x), Columns(x), x.dtype()));
  if (device.kind() == DeviceKind::kCuda) {
    return CudaKernel(device, kOp, &CudaOps::gelu_backward)(x, dy, dx);
  }
  if (device.kind() != DeviceKind::kCpu) return;
  GeluBackwardCpu(device.threads(), x.numel(), F32In(x).data(), F32In(dy).data(),
                  F32Out(dx).data());
}

void SwiGluForward(const Tensor& gate_up, Tensor& y) {
  constexpr OpKind kOp = OpKind::kSwiGluForward;
  CheckMatrix(kOp, "y", y);
  CheckPlainFloat(kOp, "y", y);
  Device& device = y.device();
  const int64_t rows = y.dim(0);
  const int64_t columns = y.dim(1);
  CheckOperand(kOp, "gate_up", gate_up, {rows, 2 * columns}, device, y.dtype());
  const OpScope scope(device, SwiGluForwardRecord(rows, columns, y.dtype()));
  if (device.kind() == DeviceKind::kCuda) {
    return CudaKernel(device, kOp, &CudaOps::swiglu_forward)(gate_up, y);
  }
  if (device.kind() != DeviceKind::kCpu) return;
  SwiGluForwardCpu(device.threads(), rows, columns, F32In(gate_up).data(), F32Out(y).data());
}

void SwiGluBackward(const Tensor& gate_up, const Tensor& dy, Tensor& dgate_up) {
  constexpr OpKind kOp = OpKind::kSwiGluBackward;
  CheckMatrix(kOp, "dy", dy);
  CheckPlainFloat(kOp, "dy", dy);
  Device& device = dy.device();
  const int64_t rows = dy.dim(0);
  const int64_t columns = dy.dim(1);
  CheckOperand(kOp, "gate_up", gate_up, {rows, 2 * columns}, device, dy.dtype());
  CheckOperand(kOp, "dgate_up", dgate_up, {rows, 2 * columns}, device, dy.dtype());
  const OpScope scope(device, SwiGluBackwardRecord(rows, columns, dy.dtype()));
  if (device.kind() == DeviceKind::kCuda) {
    return CudaKernel(device, kOp, &CudaOps::swiglu_backward)(gate_up, dy, dgate_up);
  }
  if (device.kind() != DeviceKind::kCpu) return;
  SwiGluBackwardCpu(device.threads(), rows, columns, F32In(gate_up).data(), F32In(dy).data(),
                    F32Out(dgate_up).data());
}

}  // namespace trimtab
