// How products choose their algorithm, on a GPU: trying them out changes no result. The operands
// are small integers, so that every order of sums gives the same.
#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <vector>

#include "engine/device/cuda/loader.h"
#include "engine/device/tensor.h"
#include "engine/ops/elementwise/elementwise.h"
#include "engine/ops/fp8/quantize.h"
#include "engine/ops/gemm/gemm.h"

namespace trimtab {
namespace {

constexpr int64_t kM = 192;
constexpr int64_t kN = 256;
constexpr int64_t kK = 320;

class CudaGemmTest : public testing::Test {
 protected:
  void SetUp() override {
    if (FindCudaDevices().device_count == 0) {
      GTEST_SKIP() << "no CUDA device: " << FindCudaDevices().reason;
    }
    device_ = MakeCudaDevice(0);
  }

  static std::vector<float> Integers(int64_t count, uint32_t seed) {
    std::mt19937 random(seed);
    std::vector<float> values(static_cast<size_t>(count));
    for (float& value : values) value = static_cast<float>(static_cast<int>(random() % 7) - 3);
    return values;
  }

  static Tensor Upload(Device& device, const Shape& shape, const std::vector<float>& values,
                       DType dtype) {
    Tensor wide = Tensor::Empty(device, shape, DType::kF32, MemoryTag::kActivations);
    CopyFromHost(wide, values);
    if (dtype == DType::kF32) return wide;
    Tensor tensor = Tensor::Empty(device, shape, dtype, MemoryTag::kActivations);
    if (IsFp8(dtype)) {
      const Tensor one = Upload(device, {1}, {1}, DType::kF32);
      Fp8Output out{.rows = tensor, .amax = Upload(device, {1}, {0}, DType::kF32)};
      Quantize(wide, one, out);
    } else {
      Copy(wide, tensor);
    }
    return tensor;
  }

  static std::vector<float> Download(const Tensor& tensor) {
    std::vector<float> values(static_cast<size_t>(tensor.numel()));
    CopyToHost(tensor, values);
    return values;
  }

  /// a [m, k] b [n, k]^T, exact.
  static std::vector<float> Expected(const std::vector<float>& a, const std::vector<float>& b) {
    std::vector<float> c(static_cast<size_t>(kM * kN));
    for (int64_t i = 0; i < kM; ++i) {
      for (int64_t j = 0; j < kN; ++j) {
        float sum = 0;
        for (int64_t l = 0; l < kK; ++l) {
          sum += a[static_cast<size_t>(i * kK + l)] * b[static_cast<size_t>(j * kK + l)];
        }
        c[static_cast<size_t>(i * kN + j)] = sum;
      }
    }
    return c;
  }

  std::unique_ptr<Device> device_;
  const std::vector<float> a_ = Integers(kM * kK, 1);
  const std::vector<float> b_ = Integers(kN * kK, 2);
  const std::vector<float> product_ = Expected(a_, b_);
};

TEST_F(CudaGemmTest, TheFirstCallAddsOnceThoughItTriesManyTimes) {
  for (const DType dtype : {DType::kF32, DType::kBf16, DType::kF16, DType::kF8E4M3}) {
    const Tensor a = Upload(*device_, {kM, kK}, a_, dtype);
    const Tensor b = Upload(*device_, {kN, kK}, b_, dtype);
    Tensor c = Upload(*device_, {kM, kN}, product_, DType::kF32);
    GemmOptions options{.accumulate = true};
    if (IsFp8(dtype)) options.scale_a = options.scale_b = Upload(*device_, {1}, {1}, DType::kF32);
    Gemm(a, Transpose::kNo, b, Transpose::kYes, c, options);
    Gemm(a, Transpose::kNo, b, Transpose::kYes, c, options);
    std::vector<float> expected = product_;
    for (float& value : expected) value *= 3;
    EXPECT_EQ(Download(c), expected) << Name(dtype);
  }
}

TEST_F(CudaGemmTest, AnAddendStaysAsItIsThoughTheFirstCallTriesManyTimes) {
  for (const DType dtype : {DType::kF32, DType::kBf16, DType::kF16}) {
    const Tensor a = Upload(*device_, {kM, kK}, a_, dtype);
    const Tensor b = Upload(*device_, {kN, kK}, b_, dtype);
    const std::vector<float> ones(product_.size(), 1);
    const Tensor addend = Upload(*device_, {kM, kN}, ones, DType::kF32);
    Tensor c = Upload(*device_, {kM, kN}, product_, DType::kF32);
    Gemm(a, Transpose::kNo, b, Transpose::kYes, c, {.addend = addend});
    std::vector<float> expected = product_;
    for (float& value : expected) value += 1;
    EXPECT_EQ(Download(c), expected) << Name(dtype);
    EXPECT_EQ(Download(addend), ones) << Name(dtype);
  }
}

TEST_F(CudaGemmTest, AShapeThatIsFirstSeenInACaptureRunsToo) {
  const Tensor a = Upload(*device_, {kM, kK}, a_, DType::kBf16);
  const Tensor b = Upload(*device_, {kN, kK}, b_, DType::kBf16);
  Tensor c = Upload(*device_, {kM, kN}, std::vector<float>(product_.size()), DType::kF32);
  const std::unique_ptr<CapturedWork> work = device_->Capture(
      [&] { Gemm(a, Transpose::kNo, b, Transpose::kYes, c, {.accumulate = true}); });
  work->Replay();
  work->Replay();
  std::vector<float> expected = product_;
  for (float& value : expected) value *= 2;
  EXPECT_EQ(Download(c), expected);
  Gemm(a, Transpose::kNo, b, Transpose::kYes, c);  // now timed, and no less right
  EXPECT_EQ(Download(c), product_);
}

TEST_F(CudaGemmTest, ADeterministicDeviceGivesEqualBits) {
  // Values whose sums depend on their order, and a long k that is worth splitting.
  constexpr int64_t kLong = 1 << 16;
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<size_t>(64 * kLong));
  for (float& value : values) value = normal(random);
  std::vector<std::vector<float>> results;
  for (int i = 0; i < 2; ++i) {
    const std::unique_ptr<Device> device = MakeCudaDevice(0, /*deterministic=*/true);
    const Tensor a = Upload(*device, {64, kLong}, values, DType::kBf16);
    Tensor c = Tensor::Empty(*device, {64, 64}, DType::kF32, MemoryTag::kActivations);
    for (int call = 0; call < 3; ++call) {
      Gemm(a, Transpose::kNo, a, Transpose::kYes, c);
      results.push_back(Download(c));
    }
  }
  for (const auto& result : results) EXPECT_EQ(result, results.front());
}

TEST_F(CudaGemmTest, FastAccumulationIsCloseToSplit) {
  GemmOptions options;
  options.scale_a = options.scale_b = Upload(*device_, {1}, {1}, DType::kF32);
  const Tensor a = Upload(*device_, {kM, kK}, a_, DType::kF8E4M3);
  const Tensor b = Upload(*device_, {kN, kK}, b_, DType::kF8E4M3);
  for (const bool fast : {false, true}) {
    options.fp8_sums = fast ? Fp8Sums::kShort : Fp8Sums::kFull;
    Tensor c = Tensor::Empty(*device_, {kM, kN}, DType::kF32, MemoryTag::kActivations);
    Gemm(a, Transpose::kNo, b, Transpose::kYes, c, options);
    // Small integers: fourteen bits hold every partial sum.
    EXPECT_EQ(Download(c), product_) << (fast ? "fast" : "split");
  }
}

// Those of a run lie in rows.
TEST_F(CudaGemmTest, ScalesMayLieAnywhereIn16Bytes) {
  const Tensor scales = Upload(*device_, {9 * kFp8InverseStride},
                               std::vector<float>(9 * kFp8InverseStride, 1), DType::kF32);
  const Tensor a = Upload(*device_, {kM, kK}, a_, DType::kF8E4M3);
  const Tensor b = Upload(*device_, {kN, kK}, b_, DType::kF8E5M2);
  for (int64_t i = 0; i < 8; ++i) {
    const GemmOptions options = {.scale_a = scales.Slice(i * kFp8InverseStride, {1}),
                                 .scale_b = scales.Slice((i + 1) * kFp8InverseStride, {1})};
    Tensor c = Tensor::Empty(*device_, {kM, kN}, DType::kF32, MemoryTag::kActivations);
    Gemm(a, Transpose::kNo, b, Transpose::kYes, c, options);
    EXPECT_EQ(Download(c), product_) << i;
  }
}

// The products of a layer in fp8: into bf16 with a bias, with a residual, and a weight's gradient.
TEST_F(CudaGemmTest, MakesEveryFp8ProductOfALayer) {
  const Tensor one = Upload(*device_, {1}, {1}, DType::kF32);
  for (const int64_t tokens : {16, 512}) {
    for (const int64_t in : {128, 352}) {
      for (const int64_t out : {128, 256, 704}) {
        const auto ones = [&](int64_t rows, int64_t columns, DType dtype) {
          return Upload(*device_, {rows, columns},
                        std::vector<float>(static_cast<size_t>(rows * columns), 1), dtype);
        };
        const auto all = [&](const Tensor& tensor, double value) {
          return Download(tensor) ==
                 std::vector<float>(static_cast<size_t>(tensor.numel()), static_cast<float>(value));
        };
        SCOPED_TRACE(testing::Message() << tokens << " tokens, " << in << " to " << out);
        for (const Fp8Sums sums : {Fp8Sums::kFull, Fp8Sums::kShort}) {
          GemmOptions options = {.scale_a = one, .scale_b = one, .fp8_sums = sums};
          const Tensor x = ones(tokens, in, DType::kF8E4M3);
          const Tensor w = ones(out, in, DType::kF8E4M3);
          Tensor y = ones(tokens, out, DType::kBf16);
          Gemm(x, Transpose::kNo, w, Transpose::kYes, y, options);
          EXPECT_TRUE(all(y, static_cast<double>(in)));
          options.bias = ones(1, out, DType::kBf16).Reshape({out});
          Gemm(x, Transpose::kNo, w, Transpose::kYes, y, options);
          options.addend = ones(tokens, out, DType::kBf16);
          Gemm(x, Transpose::kNo, w, Transpose::kYes, y, options);
          options.bias = {};
          Gemm(x, Transpose::kNo, w, Transpose::kYes, y, options);
          const Tensor dy = ones(tokens, out, DType::kF8E5M2);
          Tensor dx = ones(tokens, in, DType::kBf16);
          options.addend = {};
          Gemm(dy, Transpose::kNo, ones(in, out, DType::kF8E4M3), Transpose::kYes, dx, options);
          EXPECT_TRUE(all(dx, static_cast<double>(out)));
          for (const DType gradient : {DType::kF32, DType::kBf16}) {
            Tensor dw = ones(out, in, gradient);
            for (const bool accumulate : {false, true}) {
              options.accumulate = accumulate;
              Gemm(ones(out, tokens, DType::kF8E5M2), Transpose::kNo,
                   ones(in, tokens, DType::kF8E4M3), Transpose::kYes, dw, options);
            }
            EXPECT_TRUE(all(dw, 2.0 * static_cast<double>(tokens)));
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace trimtab
