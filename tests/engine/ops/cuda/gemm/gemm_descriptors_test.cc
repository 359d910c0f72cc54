// What cuBLASLt is told about the products of real models, read back from its own descriptors.
// Needs no GPU. Whether it has an algorithm only a GPU's handle can say.
#include "engine/ops/cuda/gemm/gemm_descriptors.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <utility>

#include "engine/base/error.h"
#include "tests/engine/ops/cuda/block_products.h"

namespace trimtab {
namespace {

constexpr int64_t kWorkspace = 32 << 20;

template <typename T>
T Get(cublasLtMatmulDesc_t operation, cublasLtMatmulDescAttributes_t attribute) {
  T value{};
  size_t written = 0;
  EXPECT_EQ(cublasLtMatmulDescGetAttribute(operation, attribute, &value, sizeof(value), &written),
            CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(written, sizeof(value));
  return value;
}

template <typename T>
T Get(cublasLtMatrixLayout_t layout, cublasLtMatrixLayoutAttribute_t attribute) {
  T value{};
  size_t written = 0;
  EXPECT_EQ(cublasLtMatrixLayoutGetAttribute(layout, attribute, &value, sizeof(value), &written),
            CUBLAS_STATUS_SUCCESS);
  return value;
}

template <typename T>
T Get(cublasLtMatmulPreference_t preference, cublasLtMatmulPreferenceAttributes_t attribute) {
  T value{};
  size_t written = 0;
  EXPECT_EQ(
      cublasLtMatmulPreferenceGetAttribute(preference, attribute, &value, sizeof(value), &written),
      CUBLAS_STATUS_SUCCESS);
  return value;
}

/// A matrix in cuBLASLt's own terms: column by column.
struct Matrix {
  int64_t rows, columns, leading;
  cudaDataType_t type;
};

Matrix Read(cublasLtMatrixLayout_t layout) {
  return {static_cast<int64_t>(Get<uint64_t>(layout, CUBLASLT_MATRIX_LAYOUT_ROWS)),
          static_cast<int64_t>(Get<uint64_t>(layout, CUBLASLT_MATRIX_LAYOUT_COLS)),
          Get<int64_t>(layout, CUBLASLT_MATRIX_LAYOUT_LD),
          static_cast<cudaDataType_t>(Get<uint32_t>(layout, CUBLASLT_MATRIX_LAYOUT_TYPE))};
}

Matrix Transposed(Matrix matrix, cublasOperation_t operation) {
  if (operation == CUBLAS_OP_T) std::swap(matrix.rows, matrix.columns);
  return matrix;
}

GemmKey KeyOf(const BlockProduct& product) {
  return {.m = product.m,
          .n = product.n,
          .k = product.k,
          .types = product.types,
          .trans_a = product.trans_a,
          .trans_b = product.trans_b,
          .accumulate = product.accumulate,
          .bias = product.bias};
}

int64_t ElementBytes(cudaDataType_t type) {
  switch (type) {
    case CUDA_R_32F:
      return 4;
    case CUDA_R_16BF:
    case CUDA_R_16F:
      return 2;
    default:
      return 1;
  }
}

/// The product that the descriptors describe is the transpose of ours, and dense.
void ExpectDescribes(const GemmKey& key) {
  const GemmDescriptors descriptors(key, kWorkspace, /*deterministic=*/true);
  const cublasLtMatmulDesc_t operation = descriptors.operation();
  const auto op_a =
      static_cast<cublasOperation_t>(Get<int32_t>(operation, CUBLASLT_MATMUL_DESC_TRANSA));
  const auto op_b =
      static_cast<cublasOperation_t>(Get<int32_t>(operation, CUBLASLT_MATMUL_DESC_TRANSB));
  const Matrix a = Read(descriptors.layout_a());
  const Matrix b = Read(descriptors.layout_b());
  const Matrix c = Read(descriptors.layout_c());
  for (const Matrix& matrix : {a, b, c}) EXPECT_EQ(matrix.leading, matrix.rows);
  EXPECT_EQ(Transposed(a, op_a).rows, key.n);
  EXPECT_EQ(Transposed(a, op_a).columns, key.k);
  EXPECT_EQ(Transposed(b, op_b).rows, key.k);
  EXPECT_EQ(Transposed(b, op_b).columns, key.m);
  EXPECT_EQ(c.rows, key.n);
  EXPECT_EQ(c.columns, key.m);
  EXPECT_EQ(ElementBytes(a.type), SizeOf(key.types.b));
  EXPECT_EQ(ElementBytes(b.type), SizeOf(key.types.a));
  EXPECT_EQ(ElementBytes(c.type), SizeOf(key.types.c));
  if (key.fp8()) {
    EXPECT_EQ(op_a, CUBLAS_OP_T);
    EXPECT_EQ(op_b, CUBLAS_OP_N);
    for (const Matrix& matrix : {a, b, c}) {
      EXPECT_EQ(matrix.leading * ElementBytes(matrix.type) % 16, 0);
    }
  }
  const auto epilogue =
      static_cast<cublasLtEpilogue_t>(Get<uint32_t>(operation, CUBLASLT_MATMUL_DESC_EPILOGUE));
  if (HasEpilogue(key)) return;
  EXPECT_EQ(epilogue, key.bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT);
}

// Beside the weight's gradient of GPT-2's fc1, dy^T x: cuBLASLt's B is our dy.
TEST(GemmDescriptors, RowSumsAreTheBiasGradientOfItsB) {
  const GemmKey key{.m = 3072,
                    .n = 768,
                    .k = 16384,
                    .types = {DType::kBf16, DType::kBf16, DType::kF32},
                    .trans_a = Transpose::kYes,
                    .accumulate = true,
                    .extra = GemmExtra::kRowSums};
  EXPECT_EQ(BrokenRule(key), "");
  ExpectDescribes(key);
  const GemmDescriptors descriptors(key, kWorkspace, /*deterministic=*/true);
  EXPECT_EQ(Get<uint32_t>(descriptors.operation(), CUBLASLT_MATMUL_DESC_EPILOGUE),
            static_cast<uint32_t>(CUBLASLT_EPILOGUE_BGRADB));
  EXPECT_EQ(Get<int32_t>(descriptors.operation(), CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE), CUDA_R_32F);
}

// The MLP of GPT-2: the auxiliary matrix is what gelu is of, a row of ours to a column.
TEST(GemmDescriptors, GeluIsAnEpilogue) {
  GemmKey key{.m = 16384,
              .n = 3072,
              .k = 768,
              .types = {DType::kBf16, DType::kBf16, DType::kBf16},
              .trans_b = Transpose::kYes};
  const auto expect = [&](GemmExtra extra, bool bias, cublasLtEpilogue_t expected) {
    key.extra = extra;
    key.bias = bias;
    ExpectDescribes(key);
    GemmDescriptors descriptors(key, kWorkspace, /*deterministic=*/true);
    EXPECT_EQ(Get<uint32_t>(descriptors.operation(), CUBLASLT_MATMUL_DESC_EPILOGUE),
              static_cast<uint32_t>(expected));
    EXPECT_EQ(Get<int64_t>(descriptors.operation(), CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD), 3072);
    const float auxiliary = 0;
    descriptors.SetPointers({}, &auxiliary);
    EXPECT_EQ(Get<const void*>(descriptors.operation(), CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER),
              &auxiliary);
  };
  expect(GemmExtra::kGelu, true, CUBLASLT_EPILOGUE_GELU_AUX_BIAS);
  expect(GemmExtra::kGelu, false, CUBLASLT_EPILOGUE_GELU_AUX);
  expect(GemmExtra::kGeluOf, false, CUBLASLT_EPILOGUE_DGELU);
  EXPECT_EQ(BrokenRule(key), "");
  key.bias = true;
  EXPECT_NE(BrokenRule(key), "");
  key.bias = false;
  key.n = 3071;
  EXPECT_NE(BrokenRule(key), "");
}

TEST(GemmDescriptors, DescribeEveryProductOfALlama2Block) {
  for (const int64_t tokens : {4096, 8192}) {
    for (const bool fp8 : {false, true}) {
      const auto products = ProductsOf(Llama2Block7B(), tokens, fp8, /*bias=*/false);
      EXPECT_EQ(products.size(), 12u);
      for (const BlockProduct& product : products) {
        SCOPED_TRACE(product.name + (fp8 ? " fp8" : " bf16"));
        ExpectDescribes(KeyOf(product));
      }
    }
  }
}

TEST(GemmDescriptors, DescribeEveryProductOfAGpt2BlockAndItsHead) {
  for (const bool fp8 : {false, true}) {
    for (const BlockProduct& product : ProductsOf(Gpt2Block124M(), 16384, fp8, /*bias=*/true)) {
      SCOPED_TRACE(product.name + (fp8 ? " fp8" : " bf16"));
      ExpectDescribes(KeyOf(product));
    }
  }
  // The head stays in bf16: its 50257 columns are no multiple of anything.
  for (const BlockProduct& product : ProductsOf({{"head", 50257, 768}}, 16384, false, false)) {
    SCOPED_TRACE(product.name);
    ExpectDescribes(KeyOf(product));
  }
}

TEST(GemmDescriptors, Fp8OperandsKeepTheirOwnTypesWhereTheyChangePlaces) {
  const GemmDescriptors descriptors({.m = 64,
                                     .n = 128,
                                     .k = 32,
                                     .types = {DType::kF8E5M2, DType::kF8E4M3, DType::kBf16},
                                     .trans_b = Transpose::kYes},
                                    kWorkspace, /*deterministic=*/true);
  EXPECT_EQ(Read(descriptors.layout_a()).type, CUDA_R_8F_E4M3);
  EXPECT_EQ(Read(descriptors.layout_b()).type, CUDA_R_8F_E5M2);
  EXPECT_EQ(Read(descriptors.layout_c()).type, CUDA_R_16BF);
}

TEST(GemmDescriptors, SumsAreFp32AndTf32IsAsked) {
  GemmKey key{.m = 8, .n = 8, .k = 8};
  for (const bool tf32 : {false, true}) {
    key.tf32 = tf32;
    const GemmDescriptors descriptors(key, kWorkspace, /*deterministic=*/true);
    EXPECT_EQ(Get<int32_t>(descriptors.operation(), CUBLASLT_MATMUL_DESC_COMPUTE_TYPE),
              tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F);
  }
}

// A plan of a bucket goes from one number of an expert's rows to another.
TEST(GemmDescriptors, TakeOtherSizes) {
  for (const Transpose trans_a : {Transpose::kNo, Transpose::kYes}) {
    GemmKey key{.m = 33, .n = 24, .k = 40, .trans_a = trans_a};
    GemmDescriptors descriptors(key, kWorkspace, /*deterministic=*/true);
    (trans_a == Transpose::kNo ? key.m : key.k) = 37;
    descriptors.SetSizes(key);
    const GemmDescriptors expected(key, kWorkspace, /*deterministic=*/true);
    for (const auto& layout :
         {&GemmDescriptors::layout_a, &GemmDescriptors::layout_b, &GemmDescriptors::layout_c}) {
      const Matrix found = Read((descriptors.*layout)());
      const Matrix wanted = Read((expected.*layout)());
      EXPECT_EQ(found.rows, wanted.rows);
      EXPECT_EQ(found.columns, wanted.columns);
      EXPECT_EQ(found.leading, wanted.leading);
    }
  }
}

TEST(GemmDescriptors, FastAccumulationIsAFlagOfFp8) {
  GemmKey key{.m = 64,
              .n = 64,
              .k = 64,
              .types = {DType::kF8E4M3, DType::kF8E4M3, DType::kBf16},
              .trans_b = Transpose::kYes};
  for (const bool fast : {false, true}) {
    key.fast_accumulation = fast;
    const GemmDescriptors descriptors(key, kWorkspace, /*deterministic=*/true);
    EXPECT_EQ(Get<int8_t>(descriptors.operation(), CUBLASLT_MATMUL_DESC_FAST_ACCUM), fast ? 1 : 0);
  }
}

TEST(GemmDescriptors, PreferencesSayWorkspaceAlignmentAndOrderOfSums) {
  const GemmKey key{.m = 8, .n = 8, .k = 8, .alignment_a = 16, .alignment_b = 4, .alignment_c = 64};
  const GemmDescriptors descriptors(key, kWorkspace, /*deterministic=*/true);
  const auto preference = descriptors.preference();
  EXPECT_EQ(Get<uint64_t>(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES), 32u << 20);
  EXPECT_EQ(Get<uint32_t>(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK),
            CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE);
  EXPECT_EQ(Get<uint32_t>(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES), 4u);
  EXPECT_EQ(Get<uint32_t>(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES), 16u);
  EXPECT_EQ(Get<uint32_t>(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES), 64u);
  EXPECT_EQ(Get<uint32_t>(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES), 64u);
}

TEST(GemmDescriptors, Fp32SumsOfSplitProductsMayBeMadeInPlaceInAnyOrder) {
  const auto schemes = [](DType c, bool deterministic) {
    const GemmKey key{.m = 64, .n = 64, .k = 64, .types = {DType::kBf16, DType::kBf16, c}};
    const GemmDescriptors descriptors(key, kWorkspace, deterministic);
    return Get<uint32_t>(descriptors.preference(), CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK);
  };
  const uint32_t in_place =
      CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE | CUBLASLT_REDUCTION_SCHEME_INPLACE;
  EXPECT_EQ(schemes(DType::kF32, /*deterministic=*/false), in_place);
  EXPECT_EQ(schemes(DType::kF32, /*deterministic=*/true), CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE);
  EXPECT_EQ(schemes(DType::kBf16, /*deterministic=*/false), CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE);
}

// cuBLASLt reads C and writes D: an addend is the one, gelu the other.
TEST(GemmDescriptors, PreferencesSayTheAlignmentOfAnExtra) {
  GemmKey key{.m = 8, .n = 8, .k = 8, .alignment_c = 64, .alignment_extra = 32};
  const auto expect = [&](GemmExtra extra, uint32_t c, uint32_t d) {
    key.extra = extra;
    const GemmDescriptors descriptors(key, kWorkspace, /*deterministic=*/true);
    const auto preference = descriptors.preference();
    EXPECT_EQ(Get<uint32_t>(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES), c);
    EXPECT_EQ(Get<uint32_t>(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES), d);
  };
  expect(GemmExtra::kNone, 64, 64);
  expect(GemmExtra::kAddend, 32, 64);
  expect(GemmExtra::kGelu, 64, 32);
  expect(GemmExtra::kGeluOf, 64, 64);
}

TEST(GemmDescriptors, RefuseWhatHoppersFp8UnitsDoNotTake) {
  const GemmKey good{.m = 24,
                     .n = 64,
                     .k = 32,
                     .types = {DType::kF8E5M2, DType::kF8E4M3, DType::kF32},
                     .trans_b = Transpose::kYes,
                     .accumulate = true};
  EXPECT_EQ(BrokenRule(good), "");
  std::set<std::string> rules;
  const auto refuses = [&](auto change) {
    GemmKey bad = good;
    change(bad);
    rules.insert(BrokenRule(bad));
    EXPECT_THROW(GemmDescriptors(bad, kWorkspace, /*deterministic=*/true), EnvironmentError)
        << BrokenRule(bad);
  };
  refuses([](GemmKey& key) { key.types.b = DType::kBf16; });
  refuses([](GemmKey& key) { key.types.b = DType::kF8E5M2; });
  refuses([](GemmKey& key) { key.trans_b = Transpose::kNo; });
  refuses([](GemmKey& key) { key.k = 40; });
  refuses([](GemmKey& key) { key.n = 66; });
  refuses([](GemmKey& key) { key.alignment_b = 8; });
  refuses([](GemmKey& key) { key.bias = true; });
  EXPECT_EQ(rules.size(), 7u) << "each has words of its own";
  EXPECT_EQ(rules.count(""), 0u);
}

TEST(GemmDescriptors, KeysThatDifferAnywhereAreDifferentKinds) {
  const GemmKey base{.m = 64, .n = 64, .k = 64};
  const auto differs = [&](auto change) {
    GemmKey other = base;
    change(other);
    EXPECT_TRUE(base < other || other < base);
  };
  differs([](GemmKey& key) { key.m = 65; });
  differs([](GemmKey& key) { key.n = 65; });
  differs([](GemmKey& key) { key.k = 65; });
  differs([](GemmKey& key) { key.types.a = DType::kBf16; });
  differs([](GemmKey& key) { key.types.b = DType::kBf16; });
  differs([](GemmKey& key) { key.types.c = DType::kBf16; });
  differs([](GemmKey& key) { key.trans_a = Transpose::kYes; });
  differs([](GemmKey& key) { key.trans_b = Transpose::kYes; });
  differs([](GemmKey& key) { key.alignment_a = 16; });
  differs([](GemmKey& key) { key.alignment_b = 16; });
  differs([](GemmKey& key) { key.alignment_c = 16; });
  differs([](GemmKey& key) { key.accumulate = true; });
  differs([](GemmKey& key) { key.bias = true; });
  differs([](GemmKey& key) { key.alignment_extra = 16; });
  differs([](GemmKey& key) { key.extra = GemmExtra::kGelu; });
  differs([](GemmKey& key) { key.tf32 = true; });
  differs([](GemmKey& key) { key.fast_accumulation = true; });
  EXPECT_FALSE(base < GemmKey(base));
}

}  // namespace
}  // namespace trimtab
