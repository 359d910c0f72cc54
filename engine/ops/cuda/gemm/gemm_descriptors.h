// One matrix product in the words of cuBLASLt, apart from the addresses of its operands. Needs no
// GPU.
#pragma once

#include <cublasLt.h>

#include <cstdint>
#include <memory>
#include <type_traits>

#include "engine/ops/cuda/gemm/gemm_key.h"

namespace trimtab {

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

  /// Gives the matrices the sizes of another product, which differs in nothing else.
  void SetSizes(const GemmKey& key);
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
