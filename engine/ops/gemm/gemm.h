// Matrix product, row-major: c [m, n] = op(a) [m, k] * op(b) [k, n] (+ c, or + bias per column and
// + addend), and what else is done with the result while it is at hand.
#pragma once

#include <cstdint>

#include "engine/device/tensor.h"

namespace trimtab {

enum class Transpose { kNo, kYes };

/// How a product of fp8 operands adds up.
enum class Fp8Sums {
  kFull,   // in fp32
  kShort,  // on cuda in the tensor cores' own precision: faster, exact enough for a forward pass
  kShortOnCpuToo,  // a cpu cuts its sums as Hopper's tensor cores do (cpu/short_sums.h), and is
                   // slow
};

/// Names the size that differs from call to call: the rows of an expert are m of its GEMMs, or k
/// where they are summed over.
enum class VaryingSize { kNone, kM, kK };

struct GemmOptions {
  /// Add to c instead of overwriting it.
  bool accumulate = false;
  /// [n], of c's type, added to every row. Not together with accumulate.
  Tensor bias{};
  /// [m, n], of c's type and apart from it, added too: a residual, read while the product is
  /// written. Not together with accumulate.
  Tensor addend{};
  /// Either of these [m, n], of c's type and apart from it; not together with accumulate or addend.
  /// Becomes gelu(c) (ActivationFunction::kGelu) of c as it is stored. A GPU's library may make it
  /// of c before that is rounded to its type.
  Tensor gelu{};
  /// c is multiplied by gelu'(gelu_of) before it is rounded: the gradient of what gelu was made of.
  Tensor gelu_of{};
  /// [m], of c's type: becomes the sums of the rows of op(a), which is transposed and not fp8. Of a
  /// weight's gradient that is the bias's. Overwritten with accumulate too; not with the others.
  Tensor row_sums{};
  /// fp8 operands only, and then both: fp32 [1] each, the factor that restores the stored values.
  Tensor scale_a{};
  Tensor scale_b{};
  /// fp32 operands on cuda may be rounded to TF32 (ten bits of mantissa). No effect elsewhere.
  bool tf32 = false;
  /// No effect on other operands.
  Fp8Sums fp8_sums = Fp8Sums::kFull;
  /// No algorithm is chosen for one value of this size alone.
  VaryingSize varying = VaryingSize::kNone;
};

/// Types of one product: both operands' (bytes and prices go by a's), and the result's.
struct GemmTypes {
  DType a = DType::kF32;
  DType b = DType::kF32;
  DType c = DType::kF32;
};

/// Cost of one product. Each operand moves once; c twice when accumulated into.
OpRecord GemmRecord(int64_t m, int64_t n, int64_t k, bool accumulate, const GemmTypes& types = {});
/// What a product may do beside its own work: see GemmOptions.
enum class GemmExtra { kNone, kAddend, kGelu, kGeluOf, kRowSums };
/// The same with an extra, which moves once too.
OpRecord GemmRecord(int64_t m, int64_t n, int64_t k, GemmExtra extra, const GemmTypes& types = {},
                    bool accumulate = false);

/// a is [m, k] or, transposed, [k, m]; b is [k, n] or, transposed, [n, k]; c is [m, n].
///
/// a and b are of one type of fp32, bf16, fp16 and c is of that type or fp32; or both are fp8 (not
/// both e5m2), k innermost in both (a as it is, b transposed), k a multiple of 16, and c is bf16,
/// fp16 or fp32 with n a multiple of 8: what Hopper's tensor cores take. Sums are fp32.
/// Shapes or types that disagree are a programmer's fault.
void Gemm(const Tensor& a, Transpose trans_a, const Tensor& b, Transpose trans_b, Tensor& c,
          const GemmOptions& options = {});

/// Cost of BiasBackward over dy [rows, columns].
OpRecord BiasBackwardRecord(int64_t rows, int64_t columns, DType dtype = DType::kF32,
                            DType gradient = DType::kF32);

/// dbias [n] = (dbias +) column sums of dy [m, n].
void BiasBackward(const Tensor& dy, Tensor& dbias, bool accumulate);

}  // namespace trimtab
