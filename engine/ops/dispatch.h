// What every dispatcher does: check its operands, report the op, take its scratch, then
//   if (device.kind() == DeviceKind::kCuda) return CudaKernel(device, kOp, &CudaOps::x)(...);
//   if (device.kind() != DeviceKind::kCpu) return;
// and the cpu kernel, over operands widened to fp32 (widen.h).
#pragma once

#include <string_view>

#include "engine/device/tensor.h"

namespace trimtab {

/// Reports one op to the device's recorder, if there is one, for as long as it lives.
class OpScope {
 public:
  OpScope(const Device& device, const OpRecord& op) : recorder_(device.recorder()) {
    if (recorder_ != nullptr) recorder_->BeginOp(op);
  }
  ~OpScope() {
    if (recorder_ != nullptr) recorder_->End();
  }
  OpScope(const OpScope&) = delete;
  OpScope& operator=(const OpScope&) = delete;

 private:
  Recorder* recorder_;
};

/// The operand `name` of `op` must have exactly this shape and type and live on `device`.
void CheckOperand(OpKind op, std::string_view name, const Tensor& tensor, const Shape& shape,
                  const Device& device, DType dtype = DType::kF32);

/// `tensor` must be a matrix.
void CheckMatrix(OpKind op, std::string_view name, const Tensor& tensor);

/// `tensor` must be fp32, bf16 or fp16.
void CheckPlainFloat(OpKind op, std::string_view name, const Tensor& tensor);

/// Length of the last dimension; 1 for a scalar.
inline int64_t Columns(const Tensor& tensor) {
  const int rank = tensor.shape().rank();
  return rank == 0 ? 1 : tensor.dim(rank - 1);
}

/// Product of the other dimensions.
inline int64_t Rows(const Tensor& tensor) {
  const int64_t columns = Columns(tensor);
  return columns == 0 ? 0 : tensor.numel() / columns;
}

}  // namespace trimtab
