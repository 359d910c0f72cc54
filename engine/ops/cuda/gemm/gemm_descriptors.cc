#include "engine/ops/cuda/gemm/gemm_descriptors.h"

#include <algorithm>

#include "engine/base/error.h"
#include "engine/device/cuda/check.h"

namespace trimtab {
namespace {

cudaDataType_t CudaType(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return CUDA_R_32F;
    case DType::kBf16:
      return CUDA_R_16BF;
    case DType::kF16:
      return CUDA_R_16F;
    case DType::kF8E4M3:
      return CUDA_R_8F_E4M3;
    case DType::kF8E5M2:
      return CUDA_R_8F_E5M2;
    case DType::kI32:
    case DType::kI64:
    case DType::kU16:
    case DType::kI8:
    case DType::kU8:
      break;
  }
  TRIMTAB_ASSERT(false, "no matrix product of {}", Name(dtype));
}

cublasOperation_t CublasOperation(Transpose transpose) {
  return transpose == Transpose::kYes ? CUBLAS_OP_T : CUBLAS_OP_N;
}

template <typename T>
void Set(cublasLtMatmulDesc_t operation, cublasLtMatmulDescAttributes_t attribute, T value) {
  TRIMTAB_CUDA_CHECK(cublasLtMatmulDescSetAttribute(operation, attribute, &value, sizeof(value)));
}

template <typename T>
void Set(cublasLtMatmulPreference_t preference, cublasLtMatmulPreferenceAttributes_t attribute,
         T value) {
  TRIMTAB_CUDA_CHECK(
      cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value, sizeof(value)));
}

cublasLtEpilogue_t EpilogueOf(const GemmKey& key) {
  switch (key.extra) {
    case GemmExtra::kGelu:
      return key.bias ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS : CUBLASLT_EPILOGUE_GELU_AUX;
    case GemmExtra::kGeluOf:
      return CUBLASLT_EPILOGUE_DGELU;
    case GemmExtra::kRowSums:  // our a is its B
      return CUBLASLT_EPILOGUE_BGRADB;
    case GemmExtra::kNone:
    case GemmExtra::kAddend:
      break;
  }
  return key.bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
}

}  // namespace

GemmDescriptors::GemmDescriptors(const GemmKey& key, int64_t workspace_bytes, bool deterministic) {
  if (const std::string rule = BrokenRule(key); !rule.empty()) {
    throw EnvironmentError(
        fmt::format("{}: cuBLASLt has no such product: {}", Describe(key), rule));
  }
  const bool a_as_is = key.trans_a == Transpose::kNo;
  const bool b_as_is = key.trans_b == Transpose::kNo;
  operation_ = MakeOperation(key);
  layout_a_ = MakeLayout(key.types.b, b_as_is ? key.k : key.n, b_as_is ? key.n : key.k);
  layout_b_ = MakeLayout(key.types.a, a_as_is ? key.m : key.k, a_as_is ? key.k : key.m);
  layout_c_ = MakeLayout(key.types.c, key.m, key.n);
  preference_ = MakePreference(key, workspace_bytes, deterministic);
}

GemmDescriptors::Operation GemmDescriptors::MakeOperation(const GemmKey& key) {
  cublasLtMatmulDesc_t handle = nullptr;
  TRIMTAB_CUDA_CHECK(cublasLtMatmulDescCreate(
      &handle, key.tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F, CUDA_R_32F));
  Operation operation(handle);
  Set(handle, CUBLASLT_MATMUL_DESC_TRANSA, CublasOperation(key.trans_b));
  Set(handle, CUBLASLT_MATMUL_DESC_TRANSB, CublasOperation(key.trans_a));
  Set(handle, CUBLASLT_MATMUL_DESC_EPILOGUE, EpilogueOf(key));
  if (key.bias || key.extra == GemmExtra::kRowSums) {
    Set(handle, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, CudaType(key.types.c));
  }
  if (HasAuxiliary(key)) Set(handle, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, key.n);
  if (key.fp8()) {
    Set(handle, CUBLASLT_MATMUL_DESC_FAST_ACCUM, static_cast<int8_t>(key.fast_accumulation));
  }
  return operation;
}

void GemmDescriptors::SetSizes(const GemmKey& key) {
  const auto set = [](cublasLtMatrixLayout_t layout, int64_t rows, int64_t columns) {
    const auto set_one = [layout](cublasLtMatrixLayoutAttribute_t attribute, auto value) {
      TRIMTAB_CUDA_CHECK(
          cublasLtMatrixLayoutSetAttribute(layout, attribute, &value, sizeof(value)));
    };
    set_one(CUBLASLT_MATRIX_LAYOUT_ROWS, static_cast<uint64_t>(columns));
    set_one(CUBLASLT_MATRIX_LAYOUT_COLS, static_cast<uint64_t>(rows));
    set_one(CUBLASLT_MATRIX_LAYOUT_LD, columns);
  };
  const bool a_as_is = key.trans_a == Transpose::kNo;
  const bool b_as_is = key.trans_b == Transpose::kNo;
  set(layout_a_.get(), b_as_is ? key.k : key.n, b_as_is ? key.n : key.k);
  set(layout_b_.get(), a_as_is ? key.m : key.k, a_as_is ? key.k : key.m);
  set(layout_c_.get(), key.m, key.n);
}

/// Of a row-major matrix: to cuBLASLt it has as many rows as ours has columns.
GemmDescriptors::Layout GemmDescriptors::MakeLayout(DType dtype, int64_t rows, int64_t columns) {
  cublasLtMatrixLayout_t handle = nullptr;
  TRIMTAB_CUDA_CHECK(cublasLtMatrixLayoutCreate(&handle, CudaType(dtype),
                                                static_cast<uint64_t>(columns),
                                                static_cast<uint64_t>(rows), columns));
  return Layout(handle);
}

GemmDescriptors::Preference GemmDescriptors::MakePreference(const GemmKey& key,
                                                            int64_t workspace_bytes,
                                                            bool deterministic) {
  cublasLtMatmulPreference_t handle = nullptr;
  TRIMTAB_CUDA_CHECK(cublasLtMatmulPreferenceCreate(&handle));
  Preference preference(handle);
  Set(handle, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<uint64_t>(workspace_bytes));
  // Products split along k are summed in fp32 in the workspace, in a fixed order, or in place; the
  // other schemes round partial sums to c's type.
  uint32_t schemes = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
  if (key.types.c == DType::kF32 && !deterministic) schemes |= CUBLASLT_REDUCTION_SCHEME_INPLACE;
  Set(handle, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, schemes);
  Set(handle, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, key.alignment_b);
  Set(handle, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, key.alignment_a);
  const bool adds = key.extra == GemmExtra::kAddend;
  const bool writes = key.extra == GemmExtra::kGelu;
  Set(handle, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES,
      adds ? key.alignment_extra : key.alignment_c);
  Set(handle, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES,
      writes ? key.alignment_extra : key.alignment_c);
  return preference;
}

void GemmDescriptors::SetPointers(const GemmOptions& options, const void* auxiliary) {
  const cublasLtMatmulDesc_t handle = operation_.get();
  if (auxiliary != nullptr) Set(handle, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, auxiliary);
  if (options.bias.defined()) {
    Set(handle, CUBLASLT_MATMUL_DESC_BIAS_POINTER, options.bias.raw());
  }
  if (options.row_sums.defined()) {
    Set(handle, CUBLASLT_MATMUL_DESC_BIAS_POINTER, options.row_sums.raw());
  }
  if (options.scale_a.defined()) {
    constexpr uint32_t kScaleAddress = 16;  // bytes; since CUDA 12.9
    TRIMTAB_ASSERT(
        std::min(Alignment(options.scale_a), Alignment(options.scale_b)) >= kScaleAddress,
        "gemm: a scale's address is not aligned to {} bytes", kScaleAddress);
    Set(handle, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, options.scale_b.raw());
    Set(handle, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, options.scale_a.raw());
  }
}

}  // namespace trimtab
