// One matrix product in the words of cuBLASLt: what kind of product it is, apart from the addresses
// of its operands. Needs no GPU.
#pragma once

#include <cublasLt.h>

#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>

#include "engine/base/dtype.h"
#include "engine/ops/gemm.h"

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

  /// Operands of 8 bits, with scales.
  bool fp8() const { return IsFp8(types.a); }
};
bool operator<(const GemmKey& left, const GemmKey& right);

/// The key of a call that Gemm() has checked.
GemmKey KeyOf(const Tensor& a, Transpose trans_a, const Tensor& b, Transpose trans_b,
              const Tensor& c, const GemmOptions& options);

/// What product it is, for messages.
std::string Describe(const GemmKey& key);

/// The rule of cuBLASLt that a product breaks, or empty. Its own answer is only "not supported":
/// fp8 products are TN, their rows multiples of 16 bytes, their addresses aligned to 16 bytes, and
/// no bias is added to an fp32 result (cuBLAS manual, "cublasLtMatmul()", 8-bit kernels). Auxiliary
/// matrices have rows of a multiple of 8 values (CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD).
std::string BrokenRule(const GemmKey& key);

/// Whether the extra has an auxiliary matrix.
inline bool HasAuxiliary(const GemmKey& key) {
  return key.extra == GemmExtra::kGelu || key.extra == GemmExtra::kGeluOf;
}

/// Whether the extra is an epilogue, of which cuBLASLt may have no algorithm.
inline bool HasEpilogue(const GemmKey& key) {
  return HasAuxiliary(key) || key.extra == GemmExtra::kRowSums;
}

/// The two operands change places: a row-major matrix is, to cuBLASLt, its transpose, and
/// c^T = op(b)^T op(a)^T. So its A is our b and its B our a.
class GemmDescriptors {
 public:
  /// Throws EnvironmentError with the rule the product breaks, if any. Unless `deterministic`, a
  /// product into fp32 that is split along k may add up where its result lies: as precise as sums
  /// in the workspace and without the passes over it, but cuBLASLt does not promise in which order.
  GemmDescriptors(const GemmKey& key, int64_t workspace_bytes, bool deterministic);

  cublasLtMatmulDesc_t operation() const { return operation_.get(); }
  cublasLtMatrixLayout_t layout_a() const { return layout_a_.get(); }
  cublasLtMatrixLayout_t layout_b() const { return layout_b_.get(); }
  cublasLtMatrixLayout_t layout_c() const { return layout_c_.get(); }
  cublasLtMatmulPreference_t preference() const { return preference_.get(); }

  /// The addresses that are part of the operation, before each call. `auxiliary` may be null.
  void SetPointers(const GemmOptions& options, const void* auxiliary);

 private:
  template <auto Destroy>
  struct Deleter {
    template <typename T>
    void operator()(T* handle) const {
      Destroy(handle);
    }
  };
  template <typename Handle, auto Destroy>
  using Owned = std::unique_ptr<std::remove_pointer_t<Handle>, Deleter<Destroy>>;
  using Operation = Owned<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy>;
  using Layout = Owned<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy>;
  using Preference = Owned<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy>;

  static Operation MakeOperation(const GemmKey& key);
  static Layout MakeLayout(DType dtype, int64_t rows, int64_t columns);
  static Preference MakePreference(const GemmKey& key, int64_t workspace_bytes, bool deterministic);

  Operation operation_;
  Layout layout_a_;
  Layout layout_b_;
  Layout layout_c_;
  Preference preference_;
};

}  // namespace trimtab
