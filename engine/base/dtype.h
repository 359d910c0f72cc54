// Element types of tensors.
#pragma once

#include <cstdint>
#include <string_view>

namespace trimtab {

enum class DType : int {
  kF32,
  kBf16,
  kF16,
  kI32,
  kI64,
  kF8E4M3,  // fp8 of the forward pass: 4 exponent bits, largest 448, no infinity
  kF8E5M2,  // fp8 of gradients: 5 exponent bits, largest 57344
  kU16,     // raw bits: the lower half of an fp32 master weight
  kI8,      // of quantised values, each times a scale
  kU8,      // raw bits: two quantised values of 4 bits, the first one in the lower half
};

/// Bytes of one element.
constexpr int64_t SizeOf(DType dtype) {
  switch (dtype) {
    case DType::kF32:
    case DType::kI32:
      return 4;
    case DType::kBf16:
    case DType::kF16:
    case DType::kU16:
      return 2;
    case DType::kI64:
      return 8;
    case DType::kF8E4M3:
    case DType::kF8E5M2:
    case DType::kI8:
    case DType::kU8:
      return 1;
  }
  return 0;
}

/// fp8 of either kind: such a tensor means something only with its scale.
constexpr bool IsFp8(DType dtype) { return dtype == DType::kF8E4M3 || dtype == DType::kF8E5M2; }

/// fp32, bf16 or fp16: what activations, weights and gradients are stored in.
constexpr bool IsPlainFloat(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kBf16 || dtype == DType::kF16;
}

/// Largest finite value of an fp8 type.
constexpr float Fp8Max(DType dtype) { return dtype == DType::kF8E4M3 ? 448.0f : 57344.0f; }

/// Lower-case name as written in configurations and reports ("fp32", "bf16", ...).
std::string_view Name(DType dtype);

}  // namespace trimtab
