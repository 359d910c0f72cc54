// GemmKey: everything about a GEMM but the addresses of its operands. Plans of cuBLASLt are found
// by it. Needs no CUDA.
#pragma once

#include <cstdint>
#include <string>

#include "engine/base/dtype.h"
#include "engine/ops/gemm/gemm.h"

namespace trimtab {

/// Everything that decides which algorithm suits a product: c [m, n] = op(a) [m, k] op(b) [k, n],
/// row-major and dense, so the leading dimensions follow from the sizes and transpositions. To
/// cuBLASLt our c is D, and C is what is added: c itself, or an addend of the same layout. With
/// gelu that is D, and c the auxiliary matrix; gelu_of is an auxiliary matrix too.
struct GemmKey {
  int64_t m = 0;
  int64_t n = 0;
  int64_t k = 0;
  GemmTypes types{};
  Transpose trans_a = Transpose::kNo;
  Transpose trans_b = Transpose::kNo;
  // Powers of two up to 256 that divide the addresses. Slices may start anywhere, and an algorithm
  // chosen for aligned operands would fail on them.
  uint32_t alignment_a = 256;
  uint32_t alignment_b = 256;
  uint32_t alignment_c = 256;
  uint32_t alignment_extra = 256;  // of the addend, or gelu, gelu_of, row_sums
  bool accumulate = false;
  bool bias = false;
  GemmExtra extra = GemmExtra::kNone;
  bool tf32 = false;
  bool fast_accumulation = false;
  VaryingSize varying = VaryingSize::kNone;

  /// Operands of 8 bits, with scales.
  bool fp8() const { return IsFp8(types.a); }
};
bool operator<(const GemmKey& left, const GemmKey& right);

/// Returns the largest power of two up to 256 that divides the address.
uint32_t Alignment(const Tensor& tensor);

/// Returns the key of a call that Gemm() has checked.
GemmKey KeyOf(const Tensor& a, Transpose trans_a, const Tensor& b, Transpose trans_b,
              const Tensor& c, const GemmOptions& options);

/// Describes the GEMM in messages.
std::string Describe(const GemmKey& key);

/// Returns the rule of cuBLASLt that a GEMM breaks, or empty. Its own answer is only "not
/// supported": fp8 products are TN, their rows multiples of 16 bytes, their addresses aligned to 16
/// bytes, and no bias is added to an fp32 result (cuBLAS manual, "cublasLtMatmul()", 8-bit
/// kernels). Auxiliary matrices have rows of a multiple of 8 values
/// (CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD).
std::string BrokenRule(const GemmKey& key);

/// Returns true if the extra has an auxiliary matrix.
inline bool HasAuxiliary(const GemmKey& key) {
  return key.extra == GemmExtra::kGelu || key.extra == GemmExtra::kGeluOf;
}

/// Returns true if the extra is an epilogue, for which cuBLASLt may have no algorithm.
inline bool HasEpilogue(const GemmKey& key) {
  return HasAuxiliary(key) || key.extra == GemmExtra::kRowSums;
}

/// Rounds `rows` up to the next of 16, 20, 24, 28, 32, 40, 48, 56, 64, 80, ...: four to each
/// doubling.
int64_t RowBucket(int64_t rows);

/// Returns the key by which GEMMs share a plan: a size that varies from call to call is rounded up
/// to its bucket.
GemmKey PlanKey(const GemmKey& key);

}  // namespace trimtab
