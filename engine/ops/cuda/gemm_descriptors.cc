#include "engine/ops/cuda/gemm_descriptors.h"

#include <algorithm>
#include <tuple>

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

uint32_t Alignment(const Tensor& tensor) {
  constexpr uintptr_t kMost = 256;
  const uintptr_t bits = reinterpret_cast<uintptr_t>(tensor.raw()) | kMost;
  return static_cast<uint32_t>(bits & -bits);
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

auto Members(const GemmKey& key) {
  return std::tie(key.m, key.n, key.k, key.types.a, key.types.b, key.types.c, key.trans_a,
                  key.trans_b, key.alignment_a, key.alignment_b, key.alignment_c,
                  key.alignment_extra, key.accumulate, key.bias, key.extra, key.tf32,
                  key.fast_accumulation);
}

struct ExtraMatrix {
  GemmExtra kind = GemmExtra::kNone;
  Tensor matrix{};
};

ExtraMatrix ExtraOf(const GemmOptions& options) {
  if (options.addend.defined()) return {GemmExtra::kAddend, options.addend};
  if (options.gelu.defined()) return {GemmExtra::kGelu, options.gelu};
  if (options.gelu_of.defined()) return {GemmExtra::kGeluOf, options.gelu_of};
  if (options.row_sums.defined()) return {GemmExtra::kRowSums, options.row_sums};
  return {};
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

bool operator<(const GemmKey& left, const GemmKey& right) { return Members(left) < Members(right); }

GemmKey KeyOf(const Tensor& a, Transpose trans_a, const Tensor& b, Transpose trans_b,
              const Tensor& c, const GemmOptions& options) {
  const ExtraMatrix extra = ExtraOf(options);
  return {
      .m = c.dim(0),
      .n = c.dim(1),
      .k = a.dim(trans_a == Transpose::kNo ? 1 : 0),
      .types = {a.dtype(), b.dtype(), c.dtype()},
      .trans_a = trans_a,
      .trans_b = trans_b,
      .alignment_a = Alignment(a),
      .alignment_b = Alignment(b),
      .alignment_c = Alignment(c),
      .alignment_extra = extra.matrix.defined() ? Alignment(extra.matrix) : Alignment(c),
      .accumulate = options.accumulate,
      .bias = options.bias.defined(),
      .extra = extra.kind,
      // Both are said of every product of a run; where they mean nothing they are no difference.
      .tf32 = options.tf32 && a.dtype() == DType::kF32,
      .fast_accumulation = options.fp8_sums != Fp8Sums::kFull && IsFp8(a.dtype())};
}

std::string Describe(const GemmKey& key) {
  const auto extra = [](GemmExtra kind) -> const char* {
    switch (kind) {
      case GemmExtra::kNone:
        return "";
      case GemmExtra::kAddend:
        return ", an addend";
      case GemmExtra::kGelu:
        return ", gelu";
      case GemmExtra::kGeluOf:
        return ", the derivative of gelu";
      case GemmExtra::kRowSums:
        return ", row sums";
    }
    return "";
  };
  return fmt::format("gemm [{}, {}, {}] of {}{} and {}{} into {}{}{}{}{}", key.m, key.n, key.k,
                     Name(key.types.a), key.trans_a == Transpose::kYes ? "^T" : "",
                     Name(key.types.b), key.trans_b == Transpose::kYes ? "^T" : "",
                     Name(key.types.c), key.accumulate ? ", added to it" : "",
                     key.bias ? ", a bias" : "", extra(key.extra),
                     key.fast_accumulation ? ", fast sums" : "");
}

std::string BrokenRule(const GemmKey& key) {
  constexpr int64_t kAuxiliaryRow = 8;  // values
  if (HasAuxiliary(key)) {
    if (key.n % kAuxiliaryRow != 0) {
      return fmt::format("auxiliary rows of {} are no multiple of {}", key.n, kAuxiliaryRow);
    }
    if (key.bias && key.extra == GemmExtra::kGeluOf) return "a bias with the derivative of gelu";
  }
  if (!key.fp8()) return "";
  constexpr int64_t kRow = 16;       // bytes
  constexpr uint32_t kAddress = 16;  // bytes
  if (!IsFp8(key.types.b)) return "one operand is fp8 and the other is not";
  if (key.types.a == DType::kF8E5M2 && key.types.b == DType::kF8E5M2) return "both are e5m2";
  if (key.trans_a == Transpose::kYes || key.trans_b == Transpose::kNo) {
    return "k is not innermost in both operands";
  }
  if (key.k % kRow != 0) return fmt::format("k = {} is no multiple of {}", key.k, kRow);
  if (key.n * SizeOf(key.types.c) % kRow != 0) {
    return fmt::format("rows of {} {} are no multiple of {} bytes", key.n, Name(key.types.c), kRow);
  }
  if (std::min({key.alignment_a, key.alignment_b, key.alignment_c, key.alignment_extra}) <
      kAddress) {
    return fmt::format("an address is not aligned to {} bytes", kAddress);
  }
  if (key.bias && key.types.c == DType::kF32) return "a bias is added to an fp32 result";
  return "";
}

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
