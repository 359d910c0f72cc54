#include "engine/ops/dispatch.h"

#include "engine/base/error.h"
#include "engine/ops/cuda_ops.h"

namespace trimtab {

void CheckOperand(OpKind op, std::string_view name, const Tensor& tensor, const Shape& shape,
                  const Device& device, DType dtype) {
  TRIMTAB_ASSERT(tensor.defined(), "{}: {} is undefined, expected {}", Name(op), name,
                 shape.ToString());
  TRIMTAB_ASSERT(tensor.shape() == shape && tensor.dtype() == dtype,
                 "{}: {} is {} {}, expected {} {}", Name(op), name, Name(tensor.dtype()),
                 tensor.shape().ToString(), Name(dtype), shape.ToString());
  TRIMTAB_ASSERT(&tensor.device() == &device, "{}: {} lives on another device", Name(op), name);
}

void CheckMatrix(OpKind op, std::string_view name, const Tensor& tensor) {
  TRIMTAB_ASSERT(tensor.defined() && tensor.shape().rank() == 2, "{}: {} is {}, expected a matrix",
                 Name(op), name, tensor.defined() ? tensor.shape().ToString() : "undefined");
}

void CheckPlainFloat(OpKind op, std::string_view name, const Tensor& tensor) {
  TRIMTAB_ASSERT(tensor.defined() && IsPlainFloat(tensor.dtype()),
                 "{}: {} is {}, expected fp32, bf16 or fp16", Name(op), name,
                 tensor.defined() ? Name(tensor.dtype()) : "undefined");
}

void ThrowNoKernel(OpKind op, DeviceKind device) {
  throw EnvironmentError(fmt::format("{} has no kernel on {}", Name(op), Name(device)));
}

}  // namespace trimtab
