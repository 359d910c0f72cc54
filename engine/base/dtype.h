// Element types of tensors.
#pragma once

#include <cstdint>
#include <string_view>

namespace trimtab {

enum class DType : int { kF32, kBf16, kF16, kI32, kI64 };

/// Bytes of one element.
constexpr int64_t SizeOf(DType dtype) {
  switch (dtype) {
    case DType::kF32:
    case DType::kI32:
      return 4;
    case DType::kBf16:
    case DType::kF16:
      return 2;
    case DType::kI64:
      return 8;
  }
  return 0;
}

/// Lower-case name as written in configurations and reports ("fp32", "bf16", ...).
std::string_view Name(DType dtype);

}  // namespace trimtab
