// Matrix products on a GPU, by cuBLASLt.
#include <cstdint>
#include <memory>
#include <type_traits>

#include "engine/device/cuda/check.h"
#include "engine/device/cuda/cuda_device.h"
#include "engine/ops/ops_cuda.h"

namespace trimtab {
namespace {

// cuBLASLt's own handles, destroyed with their owner.
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

cublasOperation_t CublasOperation(Transpose transpose) {
  return transpose == Transpose::kYes ? CUBLAS_OP_T : CUBLAS_OP_N;
}

template <typename T>
void SetAttribute(const Operation& operation, cublasLtMatmulDescAttributes_t attribute, T value) {
  TRIMTAB_CUDA_CHECK(
      cublasLtMatmulDescSetAttribute(operation.get(), attribute, &value, sizeof(value)));
}

Operation MakeOperation(Transpose first, Transpose second, const Tensor& bias) {
  cublasLtMatmulDesc_t handle = nullptr;
  // Full fp32: TF32 keeps ten bits of the mantissa, and losses must match the other devices.
  TRIMTAB_CUDA_CHECK(cublasLtMatmulDescCreate(&handle, CUBLAS_COMPUTE_32F, CUDA_R_32F));
  Operation operation(handle);
  SetAttribute(operation, CUBLASLT_MATMUL_DESC_TRANSA, CublasOperation(first));
  SetAttribute(operation, CUBLASLT_MATMUL_DESC_TRANSB, CublasOperation(second));
  if (bias.defined()) {
    SetAttribute(operation, CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
    SetAttribute(operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias.raw());
  }
  return operation;
}

/// A row-major matrix is, to cuBLAS, its transpose: as many rows as ours has columns.
Layout MakeLayout(const Tensor& matrix) {
  const auto rows = static_cast<uint64_t>(matrix.dim(1));
  const auto columns = static_cast<uint64_t>(matrix.dim(0));
  cublasLtMatrixLayout_t handle = nullptr;
  TRIMTAB_CUDA_CHECK(cublasLtMatrixLayoutCreate(&handle, CUDA_R_32F, rows, columns, matrix.dim(1)));
  return Layout(handle);
}

template <typename T>
void SetAttribute(const Preference& preference, cublasLtMatmulPreferenceAttributes_t attribute,
                  T value) {
  TRIMTAB_CUDA_CHECK(
      cublasLtMatmulPreferenceSetAttribute(preference.get(), attribute, &value, sizeof(value)));
}

/// The largest power of two, up to what cuBLASLt asks about, that divides the address.
uint32_t Alignment(const Tensor& tensor) {
  constexpr uintptr_t kMost = 256;
  const uintptr_t bits = reinterpret_cast<uintptr_t>(tensor.raw()) | kMost;
  return static_cast<uint32_t>(bits & -bits);
}

/// `first` and `second` in cuBLASLt's order. Slices may start anywhere, and a kernel chosen for
/// aligned operands would fail on them.
Preference MakePreference(const Tensor& first, const Tensor& second, const Tensor& result) {
  cublasLtMatmulPreference_t handle = nullptr;
  TRIMTAB_CUDA_CHECK(cublasLtMatmulPreferenceCreate(&handle));
  Preference preference(handle);
  SetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
               uint64_t{CudaDevice::kCublasWorkspaceBytes});
  SetAttribute(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, Alignment(first));
  SetAttribute(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, Alignment(second));
  SetAttribute(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, Alignment(result));
  SetAttribute(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, Alignment(result));
  return preference;
}

/// Computes c^T = op(b)^T op(a)^T, which is c = op(a) op(b) once rows are read as columns.
void GemmCuda(const Tensor& a, Transpose trans_a, const Tensor& b, Transpose trans_b, Tensor& c,
              bool accumulate, const Tensor& bias) {
  TRIMTAB_ASSERT(c.dtype() == DType::kF32, "matrix products on CUDA are fp32, asked for {}",
                 Name(c.dtype()));
  if (c.numel() == 0) return;
  auto& device = static_cast<CudaDevice&>(c.device());
  const cudaStream_t stream = device.Activate();

  const Operation operation = MakeOperation(trans_b, trans_a, bias);
  const Layout layout_a = MakeLayout(a);
  const Layout layout_b = MakeLayout(b);
  const Layout layout_c = MakeLayout(c);
  const Preference preference = MakePreference(b, a, c);
  // cuBLASLt remembers its answers, so asking again for the same shapes is cheap.
  cublasLtMatmulHeuristicResult_t choice{};
  int found = 0;
  TRIMTAB_CUDA_CHECK(cublasLtMatmulAlgoGetHeuristic(
      device.cublas(), operation.get(), layout_b.get(), layout_a.get(), layout_c.get(),
      layout_c.get(), preference.get(), 1, &choice, &found));
  if (found == 0) ThrowCudaError(CUBLAS_STATUS_NOT_SUPPORTED, "Gemm", __FILE__, __LINE__);

  const float alpha = 1.0f;
  const float beta = accumulate ? 1.0f : 0.0f;
  TRIMTAB_CUDA_CHECK(cublasLtMatmul(
      device.cublas(), operation.get(), &alpha, b.raw(), layout_b.get(), a.raw(), layout_a.get(),
      &beta, c.raw(), layout_c.get(), c.raw(), layout_c.get(), &choice.algo,
      device.cublas_workspace(), CudaDevice::kCublasWorkspaceBytes, stream));
}

}  // namespace

void FillCudaOps(CudaOps& ops) { ops.gemm = GemmCuda; }

}  // namespace trimtab
