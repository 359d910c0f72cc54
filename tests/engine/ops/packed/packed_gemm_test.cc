#include "engine/ops/packed/packed_gemm.h"

#include <cmath>
#include <limits>

#include "engine/ops/cpu/packed/packed_gemm.h"
#include "engine/ops/packed/packed_lookup.h"
#include "tests/engine/ops/op_test.h"

namespace trimtab {
namespace {

constexpr WeightFormat kFormats[] = {WeightFormat::kF32, WeightFormat::kBf16, WeightFormat::kF16,
                                     WeightFormat::kF8,  WeightFormat::kInt8, WeightFormat::kInt4};

PackedMatrix Packed(Device& device, WeightFormat format, int64_t out, int64_t in, uint32_t seed,
                    int64_t matrices = 1) {
  PackedMatrix packed = NewPackedMatrix(device, format, matrices, out, in);
  for (int64_t i = 0; i < matrices; ++i) {
    PackWeights(RandomValues(out * in, seed + static_cast<uint32_t>(i)), i, packed);
  }
  return packed;
}

std::vector<double> Unpacked(const PackedMatrix& packed, int64_t index = 0) {
  std::vector<float> weights(static_cast<size_t>(packed.out * packed.in));
  UnpackWeights(packed, index, weights);
  return ToDouble(weights);
}

std::vector<double> Product(std::span<const double> x, const std::vector<double>& w, int64_t out,
                            int64_t in, std::span<const double> bias) {
  std::vector<double> y;
  for (size_t row = 0; row < x.size() / static_cast<size_t>(in); ++row) {
    for (int64_t j = 0; j < out; ++j) {
      double sum = bias.empty() ? 0.0 : bias[static_cast<size_t>(j)];
      for (int64_t k = 0; k < in; ++k) {
        sum += x[row * static_cast<size_t>(in) + static_cast<size_t>(k)] *
               w[static_cast<size_t>(j * in + k)];
      }
      y.push_back(sum);
    }
  }
  return y;
}

using PackedGemmTest = OpTest;

TEST_P(PackedGemmTest, MultipliesByWhatWasPacked) {
  struct Size {
    int64_t m, out, in;
  };
  for (const WeightFormat format : kFormats) {
    for (const auto& [m, out, in] : {Size{1, 1, 32}, Size{3, 32, 64}, Size{17, 70, 288},
                                     Size{1, 40, 35}, Size{2, 33, 5}, Size{1, 70, 288}}) {
      if (Skips(m * out * in)) continue;
      if (format == WeightFormat::kInt4 && in % kInt4Group != 0) continue;
      const PackedMatrix weight = Packed(device(), format, out, in, 7);
      const auto x = Values(m * in, 1);
      const auto bias = Values(out, 2);
      Tensor y = Output({m, out});
      PackedGemm(Input({m, in}, x), weight, Input({out}, bias), y);
      const std::vector<double> w = Unpacked(weight);
      ExpectClose(Read(y), Product(ToDouble(x), w, out, in, ToDouble(bias)), tolerance().product,
                  std::string(Name(format)));
      Tensor wide = Output({m, out}, DType::kF32);
      PackedGemm(Input({m, in}, x), weight, {}, wide);
      ExpectClose(Read(wide), Product(ToDouble(x), w, out, in, {}), tolerance(DType::kF32).product,
                  std::string(Name(format)) + " to fp32");
    }
  }
}

TEST_P(PackedGemmTest, MultipliesGroupsOfRowsByTheirOwn) {
  const std::vector<int64_t> rows = {2, 0, 5};
  for (const WeightFormat format : {WeightFormat::kF32, WeightFormat::kInt4}) {
    const PackedMatrix weights = Packed(device(), format, 33, 64, 3, 3);
    const auto x = Values(7 * 64, 1);
    Tensor y = Output({7, 33});
    GroupedPackedGemm(Input({7, 64}, x), weights, rows, y);
    const std::vector<double> given = ToDouble(x);
    std::vector<double> expected =
        Product(std::span(given).first(2 * 64), Unpacked(weights, 0), 33, 64, {});
    const auto rest = Product(std::span(given).subspan(2 * 64), Unpacked(weights, 2), 33, 64, {});
    expected.insert(expected.end(), rest.begin(), rest.end());
    ExpectClose(Read(y), expected, tolerance().product, std::string(Name(format)));
  }
}

TEST_P(PackedGemmTest, LooksUpRowsOfItsShard) {
  constexpr int64_t kOut = 70;
  constexpr int64_t kIn = 96;
  constexpr int64_t kStart = 100;
  const std::vector<int32_t> tokens = {100, 131, 99, 169, 170, 132};
  const auto count = std::ssize(tokens);
  Tensor ids = Tensor::Empty(device(), {count}, DType::kI32, MemoryTag::kActivations);
  CopyFromHost(ids, std::span<const int32_t>(tokens));
  for (const WeightFormat format : kFormats) {
    const PackedMatrix table = Packed(device(), format, kOut, kIn, 7);
    const std::vector<double> rows = Unpacked(table);
    std::vector<double> expected;
    for (const int32_t token : tokens) {
      for (int64_t k = 0; k < kIn; ++k) {
        const bool here = token >= kStart && token < kStart + kOut;
        expected.push_back(here ? rows[static_cast<size_t>((token - kStart) * kIn + k)] : 0.0);
      }
    }
    Tensor out = Output({count, kIn});
    PackedLookup(ids, table, kStart, out);
    ExpectClose(Read(out), expected, tolerance().product, std::string(Name(format)));
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, PackedGemmTest, testing::ValuesIn(AllTargets()), TargetName);

TEST(PackTest, RoundsToTheNearestNumberOfTheFormat) {
  const std::unique_ptr<Device> device = MakeCpuDevice(1);
  constexpr int64_t kOut = 37;
  constexpr int64_t kIn = 96;
  const std::vector<float> weights = RandomValues(kOut * kIn, 11);
  for (const WeightFormat format : kFormats) {
    PackedMatrix packed = NewPackedMatrix(*device, format, 1, kOut, kIn);
    PackWeights(weights, 0, packed);
    std::vector<float> read(weights.size());
    UnpackWeights(packed, 0, read);
    for (size_t i = 0; i < weights.size(); ++i) {
      // Half a step: relative for floats, of the largest value for integers; all are below 1.
      const float relative = format == WeightFormat::kBf16  ? 0x1p-8f
                             : format == WeightFormat::kF16 ? 0x1p-11f
                             : format == WeightFormat::kF8  ? 0x1p-4f
                                                            : 0.0f;
      const float absolute = format == WeightFormat::kInt8   ? 0.5f / 127
                             : format == WeightFormat::kInt4 ? 0.5f / 7
                                                             : 1e-5f * (relative > 0 ? 200 : 0);
      ASSERT_NEAR(read[i], weights[i], relative * std::abs(weights[i]) + absolute * 1.001f)
          << Name(format) << " element " << i;
    }
  }
}

// What a cpu multiplies by, of the two ways that it has.
class PackedRowsTest : public testing::TestWithParam<Multiplier> {
 protected:
  static bool Takes(WeightFormat format) {
    return GetParam() == Multiplier::kVectors || MultiplierOf(format) == GetParam();
  }
  void SetUp() override {
    if (!Takes(WeightFormat::kBf16)) GTEST_SKIP() << "this processor has no tiles (AMX)";
  }

  static std::vector<float> Multiply(int threads, const PackedMatrix& weight,
                                     std::span<const float> x, Multiplier multiplier = GetParam()) {
    const int64_t rows = std::ssize(x) / weight.in;
    const GroupRows groups(&rows, 1);
    std::vector<float> scratch(
        static_cast<size_t>(PackedGemmScratchCpu(multiplier, weight, groups)));
    std::vector<float> y(static_cast<size_t>(rows * weight.out));
    PackedGemmCpu(multiplier, threads, weight, groups, x.data(), nullptr, y.data(), scratch.data());
    return y;
  }
};

// A row's bits do not depend on the rows around it, nor on the workers. Tiles multiply where there
// are more rows than are multiplied one by one.
TEST_P(PackedRowsTest, AreIndependent) {
  constexpr int64_t kRows = 45;
  constexpr int64_t kOut = 150;
  const std::unique_ptr<Device> device = MakeCpuDevice(1);
  const int64_t least = GetParam() == Multiplier::kTiles ? kSingleRows + 1 : 1;
  for (const int64_t in : {544, 4256}) {  // more columns than any sum is made of in one go
    const std::vector<float> x = RandomValues(kRows * in, 3);
    const int64_t step = in > 1000 ? 20 : 4;
    for (const WeightFormat format : kFormats) {
      if (!Takes(format)) continue;
      const PackedMatrix weight = Packed(*device, format, kOut, in, 5);
      const std::vector<float> expected = Multiply(1, weight, x);
      for (int64_t row = 0; row < kRows; row += step) {
        const int64_t count = std::min<int64_t>(least + row % 7, kRows - row);
        if (count < least) continue;
        const auto first = expected.begin() + row * kOut;
        EXPECT_EQ(Multiply(3, weight,
                           std::span(x).subspan(static_cast<size_t>(row * in),
                                                static_cast<size_t>(count * in))),
                  std::vector<float>(first, first + count * kOut))
            << Name(format) << " row " << row << " of " << in;
      }
    }
  }
}

// Each row is as near as its own numbers allow, whatever those of the others are; what is no number
// stays in its row.
TEST_P(PackedRowsTest, AreEachOfTheirOwnSize) {
  constexpr int64_t kIn = 96;
  constexpr int64_t kOut = 40;
  const std::vector<float> factors = {1, 1e-20f, 0, 1e20f, 3, 1};
  const auto rows = std::ssize(factors);
  const std::unique_ptr<Device> device = MakeCpuDevice(1);
  std::vector<float> x = RandomValues(rows * kIn, 9);
  for (size_t i = 0; i < x.size(); ++i) x[i] *= factors[i / kIn];
  x[4 * kIn + 7] = 2000;  // among numbers of 3
  std::vector<float> broken = x;
  broken[kIn + 5] = std::numeric_limits<float>::quiet_NaN();
  broken[3 * kIn + 5] = std::numeric_limits<float>::infinity();
  for (const WeightFormat format : kFormats) {
    if (!Takes(format)) continue;
    const PackedMatrix weight = Packed(*device, format, kOut, kIn, 7);
    const std::vector<float> y = Multiply(1, weight, x);
    const std::vector<double> expected = Product(ToDouble(x), Unpacked(weight), kOut, kIn, {});
    const std::vector<float> y_broken = Multiply(1, weight, broken);
    for (size_t i = 0; i < y.size(); ++i) {
      const size_t row = i / kOut;
      const double largest = row == 4 ? 2000 : factors[row];
      EXPECT_NEAR(y[i], expected[i], 1e-7 * largest * (kIn + 32))
          << Name(format) << ", element " << i;
      if (row == 1 || row == 3) {
        EXPECT_FALSE(std::isfinite(y_broken[i])) << Name(format) << ", element " << i;
      } else {
        EXPECT_EQ(y_broken[i], y[i]) << Name(format) << ", element " << i;
      }
    }
  }
}

// Both ways come as near as sums in fp32 do, of inputs of whatever size.
TEST_P(PackedRowsTest, AreWhatDoubleMakesOfThem) {
  struct Size {
    int64_t rows, out, in;
  };
  const std::unique_ptr<Device> device = MakeCpuDevice(1);
  for (const float factor : {1.0f, 1e-20f, 1e20f}) {
    for (const auto& [rows, out, in] :
         {Size{4, 32, 32}, Size{16, 129, 256}, Size{17, 40, 352}, Size{150, 70, 1056},
          Size{5, 33, 7}, Size{33, 64, 259}, Size{20, 33, 4256}}) {
      std::vector<float> x = RandomValues(rows * in, 9);
      for (float& each : x) each *= factor;
      for (const WeightFormat format : kFormats) {
        if (!Takes(format) || (format == WeightFormat::kInt4 && in % kInt4Group != 0)) continue;
        const PackedMatrix weight = Packed(*device, format, out, in, 7);
        const std::vector<float> y = Multiply(2, weight, x);
        const std::vector<double> w = Unpacked(weight);
        const std::vector<double> given(x.begin(), x.end());
        const std::vector<double> expected = Product(given, w, out, in, {});
        for (size_t i = 0; i < y.size(); ++i) {
          ASSERT_NEAR(y[i], expected[i], 1e-7 * factor * static_cast<double>(in + 32))
              << Name(format) << ", " << rows << " rows, " << out << " by " << in << ", element "
              << i;
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Multipliers, PackedRowsTest,
                         testing::Values(Multiplier::kVectors, Multiplier::kTiles),
                         [](const auto& test) {
                           return test.param == Multiplier::kVectors ? "vectors" : "tiles";
                         });

}  // namespace
}  // namespace trimtab
