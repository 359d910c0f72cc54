// What Hopper's tensor cores lose of fp8 products' sums, as the cpu imitates it.
#include "engine/ops/cpu/gemm/short_sums.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <random>
#include <vector>

#include "engine/ops/gemm/gemm.h"
#include "engine/ops/gemm/grouped_gemm.h"

namespace trimtab {
namespace {

constexpr float kLast = 1.0f / (1 << (kShortSumBits - 1));  // bit beside 1

/// The sum of `terms`, each a product with 1.
float SumOf(std::vector<float> terms) {
  const auto k = static_cast<int64_t>(terms.size());
  const std::vector<float> ones(terms.size(), 1.0f);
  float sum = 0;
  ShortSumGemm(1, 1, k, {terms.data(), k, false}, {ones.data(), k, true}, /*add=*/false, &sum, 1);
  return sum;
}

TEST(ShortSums, CutTermsAtTheLastBitBesideTheLargest) {
  EXPECT_EQ(SumOf({1, kLast}), 1 + kLast);
  EXPECT_EQ(SumOf({1, kLast / 2}), 1) << "below the last bit";
  EXPECT_EQ(SumOf({1, -1.5f * kLast}), 1 - kLast) << "towards zero";
  EXPECT_EQ(SumOf({-4, 3.5f * kLast}), -4);
  EXPECT_EQ(SumOf({0, 0}), 0);
  EXPECT_EQ(SumOf({}), 0);
}

// The first 32 are added exactly; beside their sum the others are too small.
TEST(ShortSums, CutLaterTermsBesideTheSumSoFar) {
  std::vector<float> terms(kShortSumTerms, 1.0f);
  EXPECT_EQ(SumOf(terms), 32);
  terms.resize(2 * kShortSumTerms, 16 * kLast);
  EXPECT_EQ(SumOf(terms), 32);
  terms.resize(3 * kShortSumTerms, 32 * kLast);
  EXPECT_EQ(SumOf(terms), 32 + kShortSumTerms * 32 * kLast);
}

/// Codes of numbers between 0.125 and 1.875, of either sign.
Tensor Codes(Device& device, const Shape& shape, uint64_t seed) {
  Tensor tensor = Tensor::Empty(device, shape, DType::kF8E4M3, MemoryTag::kWorkspace);
  std::mt19937_64 random(seed);
  std::vector<uint8_t> codes(static_cast<size_t>(shape.numel()));
  for (uint8_t& code : codes) {
    const uint64_t bits = random();
    code = static_cast<uint8_t>(0x20 + bits % 32 + (bits >> 63 << 7));
  }
  device.CopyFromHost(tensor.raw(), codes.data(), tensor.bytes());
  return tensor;
}

class ShortSumProducts : public testing::TestWithParam<int> {
 protected:
  static std::vector<float> Values(const Tensor& tensor) {
    return {tensor.f32(), tensor.f32() + tensor.numel()};
  }
  Tensor Filled(const Shape& shape, float value) {
    Tensor tensor = Tensor::Empty(*device_, shape, DType::kF32, MemoryTag::kWorkspace);
    std::fill_n(tensor.f32(), tensor.numel(), value);
    return tensor;
  }
  GemmOptions Options(Fp8Sums sums) {
    return {.scale_a = Filled({1}, 1), .scale_b = Filled({1}, 1), .fp8_sums = sums};
  }

  std::unique_ptr<Device> device_ = MakeCpuDevice(GetParam());
};

TEST_P(ShortSumProducts, LoseLittleOfLongSums) {
  constexpr int64_t kTerms = 4096;
  const Tensor a = Codes(*device_, {130, kTerms}, 1);
  const Tensor b = Codes(*device_, {72, kTerms}, 2);
  const auto product = [&](Fp8Sums sums, bool accumulate = false) {
    Tensor c = Filled({130, 72}, 0.5f);
    GemmOptions options = Options(sums);
    options.accumulate = accumulate;
    Gemm(a, Transpose::kNo, b, Transpose::kYes, c, options);
    return Values(c);
  };
  const std::vector<float> full = product(Fp8Sums::kFull);
  EXPECT_EQ(product(Fp8Sums::kShort), full) << "on a cpu";
  const std::vector<float> cut = product(Fp8Sums::kShortOnCpuToo);
  const std::vector<float> added = product(Fp8Sums::kShortOnCpuToo, /*accumulate=*/true);
  double squares = 0;
  double lost = 0;
  for (size_t i = 0; i < full.size(); ++i) {
    squares += full[i] * full[i];
    lost += (cut[i] - full[i]) * (cut[i] - full[i]);
    ASSERT_EQ(added[i], 0.5f + cut[i]) << i;
  }
  const double of_all = std::sqrt(lost / squares);
  EXPECT_GT(of_all, 1.0 / (1 << (kShortSumBits - 1))) << "more than the last bit of one sum";
  EXPECT_LT(of_all, 0.02) << "what the source saw at worst with as many terms";
}

TEST_P(ShortSumProducts, OfGroupsAreThoseOfEachGroup) {
  const std::vector<int64_t> rows = {50, 0, 80};
  const Tensor a = Codes(*device_, {130, 64}, 3);
  const Tensor b = Codes(*device_, {3, 24, 64}, 4);
  Tensor c = Filled({130, 24}, 0);
  const GemmOptions options = Options(Fp8Sums::kShortOnCpuToo);
  GroupedGemm(a, b, Transpose::kYes, rows, c, options);
  Tensor expected = Filled({130, 24}, 0);
  Tensor first = expected.Rows(0, 50);
  Tensor last = expected.Rows(50, 80);
  Gemm(a.Rows(0, 50), Transpose::kNo, b.Slice(0, {24, 64}), Transpose::kYes, first, options);
  Gemm(a.Rows(50, 80), Transpose::kNo, b.Slice(2 * 24 * 64, {24, 64}), Transpose::kYes, last,
       options);
  EXPECT_EQ(Values(c), Values(expected));
}

INSTANTIATE_TEST_SUITE_P(Threads, ShortSumProducts, testing::Values(1, 2));

}  // namespace
}  // namespace trimtab
