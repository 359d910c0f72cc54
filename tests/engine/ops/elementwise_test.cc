#include "engine/ops/elementwise.h"

#include "tests/engine/ops/op_test.h"

namespace trimtab {
namespace {

constexpr int64_t kCounts[] = {1, 3, 17, 65, 8192, 100003};

using ElementwiseTest = OpTest;

TEST_P(ElementwiseTest, AddsCopiesAndFills) {
  for (const int64_t count : kCounts) {
    const auto x = RandomValues(count, 1);
    const auto y = RandomValues(count, 2);
    std::vector<float> expected = y;
    for (size_t i = 0; i < x.size(); ++i) expected[i] += x[i];
    const Tensor x_device = Input({count}, x);
    Tensor sum = Input({count}, y);
    Add(x_device, sum);
    EXPECT_EQ(Read(sum), expected);
    Tensor copy = Output({count});
    Copy(x_device, copy);
    EXPECT_EQ(Read(copy), x);
    Tensor filled = Output({count});
    Fill(filled, 1.5f);
    EXPECT_EQ(Read(filled), std::vector<float>(x.size(), 1.5f));
  }
}

TEST_P(ElementwiseTest, AddsBiasToEveryRow) {
  for (const int64_t rows : {1, 3, 65, 500}) {
    for (const int64_t columns : {1, 17, 130}) {
      const auto x = RandomValues(rows * columns, 3);
      const auto bias = RandomValues(columns, 4);
      std::vector<float> expected = x;
      for (size_t i = 0; i < x.size(); ++i) expected[i] += bias[i % bias.size()];
      Tensor y = Input({rows, columns}, x);
      AddBias(Input({columns}, bias), y);
      EXPECT_EQ(Read(y), expected);
    }
  }
}

TEST_P(ElementwiseTest, SumsInDouble) {
  for (const int64_t count : kCounts) {
    // 1 + 2^-20 squared needs 41 bits: sums in float would lose it.
    const float value = 1.0f + 0x1p-20f;
    const Tensor x = Input({count}, std::vector<float>(static_cast<size_t>(count), value));
    const auto exact = static_cast<double>(value);
    EXPECT_DOUBLE_EQ(Sum(x), static_cast<double>(count) * exact);
    EXPECT_DOUBLE_EQ(SumSquares(x), static_cast<double>(count) * exact * exact);
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, ElementwiseTest, testing::ValuesIn(CpuTargets()), TargetName);

}  // namespace
}  // namespace trimtab
