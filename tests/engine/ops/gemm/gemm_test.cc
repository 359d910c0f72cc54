#include "engine/ops/gemm/gemm.h"

#include <array>
#include <cmath>
#include <numbers>
#include <thread>

#include "tests/engine/ops/op_test.h"

namespace trimtab {
namespace {

struct Product {
  int64_t m, n, k;
  Transpose trans_a, trans_b;
};

std::vector<double> Reference(const Product& p, std::span<const float> a,
                              std::span<const float> b) {
  std::vector<double> c(static_cast<size_t>(p.m * p.n));
  for (int64_t i = 0; i < p.m; ++i) {
    for (int64_t j = 0; j < p.n; ++j) {
      double sum = 0;
      for (int64_t l = 0; l < p.k; ++l) {
        const int64_t at = p.trans_a == Transpose::kNo ? i * p.k + l : l * p.m + i;
        const int64_t bt = p.trans_b == Transpose::kNo ? l * p.n + j : j * p.k + l;
        sum += static_cast<double>(a[static_cast<size_t>(at)]) * b[static_cast<size_t>(bt)];
      }
      c[static_cast<size_t>(i * p.n + j)] = sum;
    }
  }
  return c;
}

// The last three sizes are long enough to be divided between workers; rows of the very last lie a
// multiple of 2 KiB apart.
std::vector<Product> Products() {
  const int64_t sizes[][3] = {{1, 1, 1},     {3, 17, 65},   {17, 3, 1},    {65, 65, 3},
                              {1, 130, 17},  {64, 1, 257},  {129, 67, 33}, {701, 17, 20},
                              {17, 701, 20}, {1024, 17, 20}};
  std::vector<Product> products;
  for (const auto& size : sizes) {
    for (const Transpose a : {Transpose::kNo, Transpose::kYes}) {
      for (const Transpose b : {Transpose::kNo, Transpose::kYes}) {
        products.push_back({size[0], size[1], size[2], a, b});
      }
    }
  }
  return products;
}

Shape ShapeOfA(const Product& p) {
  return p.trans_a == Transpose::kNo ? Shape{p.m, p.k} : Shape{p.k, p.m};
}
Shape ShapeOfB(const Product& p) {
  return p.trans_b == Transpose::kNo ? Shape{p.k, p.n} : Shape{p.n, p.k};
}

using GemmTest = OpTest;

TEST_P(GemmTest, MultipliesEveryTransposition) {
  for (const Product& p : Products()) {
    const auto a = Values(p.m * p.k, 1);
    const auto b = Values(p.k * p.n, 2);
    Tensor c = Output({p.m, p.n});
    Gemm(Input(ShapeOfA(p), a), p.trans_a, Input(ShapeOfB(p), b), p.trans_b, c);
    const auto expected = Reference(p, a, b);
    ExpectClose(Read(c), expected, tolerance().product, "c");
    Tensor c32 = Output({p.m, p.n}, DType::kF32);
    Gemm(Input(ShapeOfA(p), a), p.trans_a, Input(ShapeOfB(p), b), p.trans_b, c32);
    ExpectClose(Read(c32), expected, tolerance(DType::kF32).product, "c in fp32");
  }
}

TEST_P(GemmTest, AddsToTheOutputOrAddsABias) {
  for (const Product& p : Products()) {
    const auto a = Values(p.m * p.k, 3);
    const auto b = Values(p.k * p.n, 4);
    const auto before = GradientValues(p.m * p.n, 5);
    const auto bias = Values(p.n, 6);
    auto expected_sum = Reference(p, a, b);
    auto expected_bias = expected_sum;
    for (size_t i = 0; i < before.size(); ++i) {
      expected_sum[i] += before[i];
      expected_bias[i] += bias[i % static_cast<size_t>(p.n)];
    }
    const Tensor a_device = Input(ShapeOfA(p), a);
    const Tensor b_device = Input(ShapeOfB(p), b);
    Tensor sum = Input({p.m, p.n}, before, gradient_dtype());
    Gemm(a_device, p.trans_a, b_device, p.trans_b, sum, {.accumulate = true});
    ExpectClose(Read(sum), expected_sum, tolerance(gradient_dtype()).product, "accumulated");
    Tensor biased = Output({p.m, p.n});
    Gemm(a_device, p.trans_a, b_device, p.trans_b, biased, {.bias = Input({p.n}, bias)});
    ExpectClose(Read(biased), expected_bias, tolerance().epilogue, "biased");
  }
}

// The residual of a layer, with the bias or without.
TEST_P(GemmTest, AddsAnAddend) {
  for (const Product& p : Products()) {
    const auto a = Values(p.m * p.k, 3);
    const auto b = Values(p.k * p.n, 4);
    const auto addend = Values(p.m * p.n, 5);
    const auto bias = Values(p.n, 6);
    auto expected = Reference(p, a, b);
    for (size_t i = 0; i < expected.size(); ++i) expected[i] += addend[i];
    GemmOptions options = {.addend = Input({p.m, p.n}, addend)};
    Tensor c = Output({p.m, p.n});
    const Tensor a_device = Input(ShapeOfA(p), a);
    const Tensor b_device = Input(ShapeOfB(p), b);
    Gemm(a_device, p.trans_a, b_device, p.trans_b, c, options);
    ExpectClose(Read(c), expected, tolerance().product, "with an addend");
    options.bias = Input({p.n}, bias);
    for (size_t i = 0; i < expected.size(); ++i) {
      expected[i] += bias[i % static_cast<size_t>(p.n)];
    }
    Tensor both = Output({p.m, p.n});
    Gemm(a_device, p.trans_a, b_device, p.trans_b, both, options);
    ExpectClose(Read(both), expected, tolerance().epilogue, "with a bias too");
    EXPECT_EQ(Read(options.addend), addend);
  }
}

double GeluOf(double x) {
  const double u = std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x);
  return x / 2 * (1 + std::tanh(u));
}

TEST_P(GemmTest, MakesGeluOfItsResult) {
  for (const Product& p : Products()) {
    const auto a = Values(p.m * p.k, 3);
    const auto b = Values(p.k * p.n, 4);
    const auto bias = Values(p.n, 6);
    auto expected = Reference(p, a, b);
    std::vector<double> activated;
    for (size_t i = 0; i < expected.size(); ++i) {
      expected[i] += bias[i % static_cast<size_t>(p.n)];
      activated.push_back(GeluOf(expected[i]));
    }
    Tensor c = Output({p.m, p.n});
    Tensor gelu = Output({p.m, p.n});
    Gemm(Input(ShapeOfA(p), a), p.trans_a, Input(ShapeOfB(p), b), p.trans_b, c,
         {.bias = Input({p.n}, bias), .gelu = gelu});
    ExpectClose(Read(c), expected, tolerance().epilogue, "c");
    ExpectClose(Read(gelu), activated, tolerance().chained, "gelu");
  }
}

// dx = (dy W) * gelu'(x): the gradient of Dot(gelu(x), dy W).
TEST_P(GemmTest, GoesBackThroughGelu) {
  for (const Product& p : Products()) {
    const auto a = Values(p.m * p.k, 3);
    const auto b = Values(p.k * p.n, 4);
    const auto x = Values(p.m * p.n, 5, 3.0f);
    const auto product = Reference(p, a, b);
    std::vector<double> expected;
    for (size_t i = 0; i < product.size(); ++i) {
      expected.push_back(NumericGradient(
          {double{x[i]}}, [&](std::span<const double> v) { return GeluOf(v[0]) * product[i]; })[0]);
    }
    Tensor c = Output({p.m, p.n});
    const Tensor gelu_of = Input({p.m, p.n}, x);
    Gemm(Input(ShapeOfA(p), a), p.trans_a, Input(ShapeOfB(p), b), p.trans_b, c,
         {.gelu_of = gelu_of});
    ExpectClose(Read(c), expected, tolerance().epilogue, "c");
    EXPECT_EQ(Read(gelu_of), x);
  }
}

// The gradient of a bias beside that of a weight, dy^T x.
TEST_P(GemmTest, SumsTheRowsOfATransposedOperand) {
  for (const Product& p : Products()) {
    if (p.trans_a == Transpose::kNo) continue;
    const auto a = Values(p.m * p.k, 3);
    const auto b = Values(p.k * p.n, 4);
    const auto before = GradientValues(p.m * p.n, 5);
    auto expected = Reference(p, a, b);
    std::vector<double> expected_sums(static_cast<size_t>(p.m));
    for (size_t i = 0; i < a.size(); ++i) expected_sums[i % expected_sums.size()] += a[i];
    const Tensor a_device = Input(ShapeOfA(p), a);
    const Tensor b_device = Input(ShapeOfB(p), b);
    for (const bool accumulate : {false, true}) {
      Tensor c = Input({p.m, p.n}, before, gradient_dtype());
      Tensor sums = Output({p.m}, gradient_dtype());
      Gemm(a_device, p.trans_a, b_device, p.trans_b, c,
           {.accumulate = accumulate, .row_sums = sums});
      if (accumulate) {
        for (size_t i = 0; i < before.size(); ++i) expected[i] += before[i];
      }
      ExpectClose(Read(c), expected, tolerance(gradient_dtype()).product, "c");
      ExpectClose(Read(sums), expected_sums, tolerance(gradient_dtype()).reduction, "sums");
    }
  }
}

class Fp8GemmTest : public OpTest {
 protected:
  Tensor Scalar(float value) { return Input({1}, std::vector<float>{value}, DType::kF32); }
};

TEST_P(Fp8GemmTest, MultipliesWhatTheScalesRestore) {
  struct Types {
    DType a, b;
  };
  constexpr Types kTypes[] = {{DType::kF8E4M3, DType::kF8E4M3},
                              {DType::kF8E5M2, DType::kF8E4M3},
                              {DType::kF8E4M3, DType::kF8E5M2}};
  for (const auto& [type_a, type_b] : kTypes) {
    for (const auto& size : {std::array<int64_t, 3>{1, 8, 16}, {33, 24, 48}, {130, 136, 144}}) {
      const Product p = {size[0], size[1], size[2], Transpose::kNo, Transpose::kYes};
      if (Skips(p.m * p.n)) continue;
      const float scale_a = 0.37f;
      const float scale_b = 1.9f;
      const auto a = Rounded(type_a, RandomValues(p.m * p.k, 1, 400.0f));
      const auto b = Rounded(type_b, RandomValues(p.k * p.n, 2, 2.0f));
      auto expected = Reference(p, a, b);
      for (double& value : expected) value *= static_cast<double>(scale_a) * scale_b;
      const Tensor a_device = Input(ShapeOfA(p), a, type_a);
      const Tensor b_device = Input(ShapeOfB(p), b, type_b);
      GemmOptions options = {.scale_a = Scalar(scale_a), .scale_b = Scalar(scale_b)};
      Tensor c = Output({p.m, p.n});
      Gemm(a_device, p.trans_a, b_device, p.trans_b, c, options);
      const double allowed = tolerance().product + tolerance().fp8_sums;
      ExpectClose(Read(c), expected, allowed, "c");
      const auto residual = Values(p.m * p.n, 4, 100.0f);
      GemmOptions added = options;
      added.addend = Input({p.m, p.n}, residual);
      Tensor with_residual = Output({p.m, p.n});
      Gemm(a_device, p.trans_a, b_device, p.trans_b, with_residual, added);
      auto expected_sum = expected;
      for (size_t i = 0; i < residual.size(); ++i) expected_sum[i] += residual[i];
      ExpectClose(Read(with_residual), expected_sum, allowed, "with an addend");
      const auto before = GradientValues(p.m * p.n, 3, 100.0f);
      Tensor sum = Input({p.m, p.n}, before, gradient_dtype());
      options.accumulate = true;
      Gemm(a_device, p.trans_a, b_device, p.trans_b, sum, options);
      for (size_t i = 0; i < before.size(); ++i) expected[i] += before[i];
      const Tolerance of_sum = tolerance(gradient_dtype());
      ExpectClose(Read(sum), expected, of_sum.epilogue + of_sum.fp8_sums, "accumulated");
    }
  }
}

TEST(GemmShapeTest, StopsAtTypesThatDoNotMultiply) {
  const auto device = MakeMetaDevice(1);
  const auto matrix = [&](int64_t rows, int64_t columns, DType dtype) {
    return Tensor::Empty(*device, {rows, columns}, dtype, MemoryTag::kWorkspace);
  };
  const Tensor bf16 = matrix(16, 16, DType::kBf16);
  const Tensor e5m2 = matrix(16, 16, DType::kF8E5M2);
  const Tensor e4m3 = matrix(16, 16, DType::kF8E4M3);
  const Tensor scale = Tensor::Empty(*device, {1}, DType::kF32, MemoryTag::kWorkspace);
  Tensor fp16 = matrix(16, 16, DType::kF16);
  Tensor c = matrix(16, 16, DType::kBf16);
  const auto gemm = [&](const Tensor& a, const Tensor& b, Tensor& out, bool scaled,
                        Transpose trans_b = Transpose::kYes) {
    GemmOptions options;
    if (scaled) options = {.scale_a = scale, .scale_b = scale};
    Gemm(a, Transpose::kNo, b, trans_b, out, options);
  };
  EXPECT_DEATH(gemm(bf16, bf16, fp16, false), "c is fp16, a is bf16");
  EXPECT_DEATH(gemm(bf16, fp16, c, false), "b is fp16");
  EXPECT_DEATH(gemm(bf16, bf16, c, true), "scales with bf16");
  EXPECT_DEATH(gemm(e5m2, e5m2, c, true), "at most is e5m2");
  EXPECT_DEATH(gemm(e4m3, bf16, c, true), "expected fp8");
  EXPECT_DEATH(gemm(e4m3, e4m3, c, false), "scale_a is undefined");
  EXPECT_DEATH(gemm(e4m3, e4m3, c, true, Transpose::kNo), "k innermost");
  const Tensor narrow = matrix(16, 8, DType::kF8E4M3);
  EXPECT_DEATH(gemm(narrow, narrow, c, true), "multiples of 8 and 16");
}

TEST(GemmShapeTest, StopsAtExtrasThatDoNotGoTogether) {
  const auto device = MakeMetaDevice(1);
  const auto matrix = [&](int64_t rows, int64_t columns) {
    return Tensor::Empty(*device, {rows, columns}, DType::kF32, MemoryTag::kWorkspace);
  };
  const Tensor a = matrix(2, 3);
  const Tensor b = matrix(3, 5);
  Tensor c = matrix(2, 5);
  const auto gemm = [&](const GemmOptions& options) {
    Gemm(a, Transpose::kNo, b, Transpose::kNo, c, options);
  };
  EXPECT_DEATH(gemm({.addend = matrix(2, 4)}), "addend is fp32 .2, 4., expected.*.2, 5.");
  EXPECT_DEATH(gemm({.accumulate = true, .addend = matrix(2, 5)}), "addend with accumulate");
  EXPECT_DEATH(gemm({.addend = matrix(2, 5), .gelu = matrix(2, 5)}), "gelu together with addend");
  EXPECT_DEATH(gemm({.row_sums = matrix(2, 1).Reshape({2})}), "not transposed");
}

TEST(GemmShapeTest, StopsAtMatricesThatDoNotMultiply) {
  const auto device = MakeMetaDevice(1);
  const auto matrix = [&](int64_t rows, int64_t columns) {
    return Tensor::Empty(*device, {rows, columns}, DType::kF32, MemoryTag::kWorkspace);
  };
  const Tensor a = matrix(2, 3);
  const Tensor b = matrix(4, 5);
  Tensor c = matrix(2, 5);
  EXPECT_DEATH(Gemm(a, Transpose::kNo, b, Transpose::kNo, c), "b is fp32 .4, 5., expected.*.3, 5.");
}

// Ranks are threads of one process: each has its own workers and its own numbers.
TEST(GemmRanksTest, RunSideBySide) {
  const Product p = {65, 130, 33, Transpose::kNo, Transpose::kYes};
  std::vector<std::vector<float>> results(4);
  std::vector<std::thread> ranks;
  for (uint32_t rank = 0; rank < 4; ++rank) {
    ranks.emplace_back([&, rank] {
      const auto device = MakeCpuDevice(static_cast<int>(1 + rank % 2));
      const auto upload = [&](const Shape& shape, uint32_t seed) {
        Tensor tensor = Tensor::Empty(*device, shape, DType::kF32, MemoryTag::kActivations);
        CopyFromHost(tensor, RandomValues(shape.numel(), seed));
        return tensor;
      };
      const Tensor a = upload(ShapeOfA(p), 2 * rank);
      const Tensor b = upload(ShapeOfB(p), 2 * rank + 1);
      Tensor c = upload({p.m, p.n}, 99);
      for (int repeat = 0; repeat < 20; ++repeat) Gemm(a, p.trans_a, b, p.trans_b, c);
      results[rank].resize(static_cast<size_t>(c.numel()));
      CopyToHost(c, results[rank]);
    });
  }
  for (std::thread& rank : ranks) rank.join();
  for (uint32_t rank = 0; rank < 4; ++rank) {
    const auto expected =
        Reference(p, RandomValues(p.m * p.k, 2 * rank), RandomValues(p.k * p.n, 2 * rank + 1));
    ExpectClose(results[rank], expected, ToleranceOf(DType::kF32).product, "c of a rank");
  }
}

class BiasBackwardTest : public OpTest {};

TEST_P(BiasBackwardTest, SumsColumns) {
  for (const int64_t rows : {1, 3, 65, 200}) {
    for (const int64_t columns : {1, 17, 64, 131}) {
      const auto dy = Values(rows * columns, 7);
      const auto before = GradientValues(columns, 8);
      std::vector<double> expected(static_cast<size_t>(columns));
      for (size_t i = 0; i < dy.size(); ++i) expected[i % expected.size()] += dy[i];
      const Tensor dy_device = Input({rows, columns}, dy);
      Tensor dbias = Output({columns}, gradient_dtype());
      BiasBackward(dy_device, dbias, false);
      ExpectClose(Read(dbias), expected, tolerance(gradient_dtype()).reduction, "dbias");
      Tensor accumulated = Input({columns}, before, gradient_dtype());
      BiasBackward(dy_device, accumulated, true);
      for (size_t i = 0; i < expected.size(); ++i) expected[i] += before[i];
      ExpectClose(Read(accumulated), expected, tolerance(gradient_dtype()).reduction,
                  "accumulated dbias");
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, Fp8GemmTest, testing::ValuesIn(AllTargets()), TargetName);
INSTANTIATE_TEST_SUITE_P(Devices, GemmTest, testing::ValuesIn(AllTargets()), TargetName);
INSTANTIATE_TEST_SUITE_P(Devices, BiasBackwardTest, testing::ValuesIn(AllTargets()), TargetName);

}  // namespace
}  // namespace trimtab
