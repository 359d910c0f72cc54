#include "engine/ops/elementwise/elementwise.h"

#include <algorithm>
#include <cmath>

#include "tests/engine/ops/op_test.h"

namespace trimtab {
namespace {

constexpr int64_t kCounts[] = {1, 3, 17, 65, 8192, 100003};

using ElementwiseTest = OpTest;

TEST_P(ElementwiseTest, AddsAndFills) {
  for (const int64_t count : kCounts) {
    if (Skips(count)) continue;
    const auto x = Values(count, 1);
    const auto y = Values(count, 2);
    std::vector<float> expected = y;
    for (size_t i = 0; i < x.size(); ++i) expected[i] += x[i];
    Tensor sum = Input({count}, y);
    Add(Input({count}, x), sum);
    EXPECT_EQ(Read(sum), Rounded(dtype(), expected));
    Tensor filled = Output({count});
    Fill(filled, 1.7f);
    EXPECT_EQ(Read(filled), Rounded(dtype(), std::vector<float>(x.size(), 1.7f)));
  }
}

TEST_P(ElementwiseTest, ScalesAndCaps) {
  for (const SoftCap& f : {SoftCap{.scale = 1.75f}, SoftCap{.scale = 0.5f, .cap = 3.0f}}) {
    for (const int64_t count : kCounts) {
      if (Skips(count)) continue;
      const auto x = Values(count, 1, 20.0f);
      std::vector<double> expected;
      for (const double value : ToDouble(x)) {
        const double scaled = value * double{f.scale};
        expected.push_back(f.cap > 0 ? double{f.cap} * std::tanh(scaled / double{f.cap}) : scaled);
      }
      Tensor y = Input({count}, x);
      ApplySoftCap(f, y);
      ExpectClose(Read(y), expected, tolerance().elementwise, "soft cap");
    }
  }
}

TEST_P(ElementwiseTest, CopiesIntoEveryType) {
  for (const int64_t count : kCounts) {
    if (Skips(count)) continue;
    auto x = Values(count, 1);
    x[0] = -INFINITY;
    const Tensor source = Input({count}, x);
    for (const DType to : {DType::kF32, DType::kBf16, DType::kF16}) {
      Tensor copy = Output({count}, to);
      Copy(source, copy);
      EXPECT_EQ(Read(copy), Rounded(to, x)) << Name(to);
    }
  }
}

TEST_P(ElementwiseTest, CopiesColumnsAndNothingBesideThem) {
  struct Columns {
    int64_t from, source, to, destination, count;
  };
  for (const auto& [from, source, to, destination, count] :
       {Columns{0, 1, 0, 1, 1}, {3, 10, 5, 17, 7}, {8, 24, 16, 40, 16}, {0, 300, 130, 430, 300}}) {
    for (const int64_t rows : {1, 5, 70}) {
      const auto x = Values(rows * source, 1);
      for (const DType type : {DType::kF32, dtype()}) {
        std::vector<float> expected = Rounded(type, RandomValues(rows * destination, 2));
        Tensor y = Input({rows, destination}, expected, type);
        for (int64_t i = 0; i < rows * count; ++i) {
          const int64_t row = i / count;
          expected[static_cast<size_t>(row * destination + to + i % count)] =
              x[static_cast<size_t>(row * source + from + i % count)];
        }
        CopyColumns(Input({rows, source}, x), from, y, to, count);
        EXPECT_EQ(Read(y), expected);
      }
    }
  }
}

TEST_P(ElementwiseTest, RoundsTheColumnsItCopies) {
  const auto x = RandomValues(6 * 16, 1);
  Tensor y = Output({6, 8});
  CopyColumns(Input({6, 16}, x, DType::kF32), 8, y, 0, 8);
  std::vector<float> expected;
  for (size_t i = 0; i < x.size(); ++i) {
    if (i % 16 >= 8) expected.push_back(x[i]);
  }
  EXPECT_EQ(Read(y), Rounded(dtype(), expected));
}

TEST_P(ElementwiseTest, ClearsRawBitsAndFp8) {
  for (const DType type : {DType::kU16, DType::kF8E4M3, DType::kF8E5M2}) {
    Tensor x = type == DType::kU16 ? RawBits(std::vector<uint16_t>(35, 7)) : Output({35}, type);
    Fill(x, 0.0f);
    EXPECT_EQ(ReadBytes(x), std::vector<uint8_t>(static_cast<size_t>(x.bytes())));
  }
}

TEST_P(ElementwiseTest, AddsBiasToEveryRow) {
  for (const int64_t rows : {1, 3, 65, 500}) {
    for (const int64_t columns : {1, 17, 130}) {
      const auto x = Values(rows * columns, 3);
      const auto bias = Values(columns, 4);
      std::vector<float> expected = x;
      for (size_t i = 0; i < x.size(); ++i) expected[i] += bias[i % bias.size()];
      Tensor y = Input({rows, columns}, x);
      AddBias(Input({columns}, bias), y);
      EXPECT_EQ(Read(y), Rounded(dtype(), expected));
      const auto addend = Values(rows * columns, 5);
      for (size_t i = 0; i < x.size(); ++i) expected[i] += addend[i];
      Tensor sum = Input({rows, columns}, x);
      AddBias(Input({columns}, bias), sum, Input({rows, columns}, addend));
      EXPECT_EQ(Read(sum), Rounded(dtype(), expected)) << "rounded once";
    }
  }
}

// One rounding to fp32 of a sum in double. A sum in float loses the value's last bits, or those of
// its square, and is off by more.
TEST_P(ElementwiseTest, SumsInDouble) {
  const Tensor sum = Output({1}, DType::kF32);
  for (const int64_t count : kCounts) {
    if (Skips(count)) continue;
    const float value = 1.0f + 0x1p-20f;
    const auto exact = static_cast<double>(count) * static_cast<double>(value);
    const Tensor x =
        Input({count}, std::vector<float>(static_cast<size_t>(count), value), DType::kF32);
    Tensor total = sum;
    Sum(x, total, /*accumulate=*/false);
    EXPECT_NEAR(Read(total)[0], exact, exact * 0x1p-23);
    Sum(x, total, /*accumulate=*/true);
    EXPECT_NEAR(Read(total)[0], 2 * exact, 2 * exact * 0x1p-23);
    const auto squares = Values(count, 5);
    double expected = 0;
    for (const float each : squares) expected += static_cast<double>(each) * each;
    SumSquares(Input({count}, squares), total);
    EXPECT_NEAR(Read(total)[0], expected, expected * 0x1p-23);
  }
}

TEST_P(ElementwiseTest, ClampsAndLetsGradientsThroughInside) {
  for (const int64_t count : {1, 17, 4099}) {
    const auto x = Values(count, 1, 2.0f);
    const auto dy = Values(count, 2);
    std::vector<double> expected;
    std::vector<double> expected_dx;
    for (size_t i = 0; i < x.size(); ++i) {
      expected.push_back(std::clamp<double>(x[i], -0.75, 0.75));
      expected_dx.push_back(std::abs(x[i]) > 0.75f ? 0.0 : dy[i]);
    }
    const Tensor x_device = Input({count}, x);
    Tensor y = Output({count});
    Clamp(x_device, 0.75f, y);
    ExpectClose(Read(y), expected, tolerance().elementwise, "clamped");
    Tensor dx = Input({count}, dy);
    ClampBackward(x_device, 0.75f, dx);
    ExpectClose(Read(dx), expected_dx, tolerance().elementwise, "gradient");
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, ElementwiseTest, testing::ValuesIn(AllTargets()), TargetName);

}  // namespace
}  // namespace trimtab
