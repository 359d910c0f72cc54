#include "engine/base/dtype.h"

namespace trimtab {

std::string_view Name(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return "fp32";
    case DType::kBf16:
      return "bf16";
    case DType::kF16:
      return "fp16";
    case DType::kI32:
      return "int32";
    case DType::kI64:
      return "int64";
    case DType::kF8E4M3:
      return "fp8_e4m3";
    case DType::kF8E5M2:
      return "fp8_e5m2";
    case DType::kU16:
      return "uint16";
    case DType::kI8:
      return "int8";
    case DType::kU8:
      return "uint8";
  }
  return "?";
}

}  // namespace trimtab
