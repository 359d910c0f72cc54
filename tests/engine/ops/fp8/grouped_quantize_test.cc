#include "engine/ops/fp8/grouped_quantize.h"

#include "tests/engine/ops/op_test.h"

namespace trimtab {
namespace {

constexpr int64_t kColumns = 48;
const std::vector<int64_t> kRows = {17, 1, 0, 32, 30};
constexpr int64_t kAll = 80;

class GroupedQuantizeTest : public OpTest {
 protected:
  Tensor Scalar(float value) { return Input({1}, std::vector<float>{value}, DType::kF32); }
  Fp8Output NewOutput(int64_t columns, DType type) {
    return {.rows = Output({kAll, columns}, type),
            .transposed = Output({TransposedGroupsSize(kRows, columns)}, type),
            .amax = Scalar(0.0f)};
  }
};

float At(const std::vector<float>& values, int64_t row, int64_t columns, int64_t column) {
  return values[static_cast<size_t>(row * columns + column)];
}

TEST_P(GroupedQuantizeTest, TransposesGroupByGroupWithZerosBehind) {
  for (const DType type : {DType::kF8E4M3, DType::kF8E5M2}) {
    const auto x = Values(kAll * kColumns, 1);
    std::vector<float> scaled = x;
    for (float& value : scaled) value *= 3.0f;
    const auto codes = Rounded(type, scaled);
    std::vector<float> transposed;
    int64_t first = 0;
    for (const int64_t rows : kRows) {
      for (int64_t column = 0; column < kColumns; ++column) {
        for (int64_t row = 0; row < (rows + 15) / 16 * 16; ++row) {
          transposed.push_back(row < rows ? At(codes, first + row, kColumns, column) : 0.0f);
        }
      }
      first += rows;
    }
    const Tensor x_device = Input({kAll, kColumns}, x);
    Fp8Output out = NewOutput(kColumns, type);
    QuantizeGroups(x_device, kRows, Scalar(3.0f), out);
    EXPECT_EQ(Read(out.rows), codes);
    EXPECT_EQ(Read(out.transposed), transposed);
    Tensor amax = Scalar(0.0f);
    Amax(x_device, amax);
    EXPECT_EQ(Read(out.amax), Read(amax));
    Fp8Output alone = NewOutput(kColumns, type);
    alone.rows = alone.amax = {};
    QuantizeGroups(x_device, kRows, Scalar(3.0f), alone);
    EXPECT_EQ(Read(alone.transposed), transposed);
  }
}

TEST_P(GroupedQuantizeTest, ProductsAreThoseOfTheStoredValues) {
  constexpr int64_t kOut = 32;
  const auto groups = static_cast<int64_t>(kRows.size());
  const auto x = Rounded(DType::kF8E4M3, RandomValues(kAll * kColumns, 2));
  const auto weights = Rounded(DType::kF8E4M3, RandomValues(groups * kOut * kColumns, 3));
  const auto dy = Rounded(DType::kF8E5M2, RandomValues(kAll * kOut, 4));
  const auto before = GradientValues(groups * kOut * kColumns, 5);
  std::vector<double> y;
  std::vector<double> dw = ToDouble(before);
  int64_t row = 0;
  for (int64_t g = 0; g < groups; ++g) {
    for (int64_t i = 0; i < kRows[static_cast<size_t>(g)]; ++i, ++row) {
      for (int64_t column = 0; column < kOut; ++column) {
        double sum = 0;
        for (int64_t j = 0; j < kColumns; ++j) {
          const double from_x = At(x, row, kColumns, j);
          sum += from_x * At(weights, g * kOut + column, kColumns, j);
          dw[static_cast<size_t>((g * kOut + column) * kColumns + j)] +=
              0.5 * At(dy, row, kOut, column) * from_x;
        }
        y.push_back(0.5 * sum);
      }
    }
  }
  // The values as they are: fp8 holds them.
  Fp8Output x_fp8 = NewOutput(kColumns, DType::kF8E4M3);
  QuantizeGroups(Input({kAll, kColumns}, x, DType::kF32), kRows, Scalar(1.0f), x_fp8);
  Fp8Output dy_fp8 = NewOutput(kOut, DType::kF8E5M2);
  QuantizeGroups(Input({kAll, kOut}, dy, DType::kF32), kRows, Scalar(1.0f), dy_fp8);
  Tensor c = Output({kAll, kOut});
  GroupedGemm(x_fp8.rows, Input({groups, kOut, kColumns}, weights, DType::kF8E4M3), Transpose::kYes,
              kRows, c, {.scale_a = Scalar(0.25f), .scale_b = Scalar(2.0f)});
  ExpectClose(Read(c), y, tolerance().product + tolerance().fp8_sums, "y");
  Tensor gradient = Input({groups, kOut, kColumns}, before, gradient_dtype());
  GroupedGemmWeights(dy_fp8.transposed, x_fp8.transposed, kRows, gradient,
                     {.accumulate = true, .scale_a = Scalar(2.0f), .scale_b = Scalar(0.25f)});
  const Tolerance allowed = tolerance(gradient_dtype());
  ExpectClose(Read(gradient), dw, allowed.product + allowed.fp8_sums, "dw");
}

INSTANTIATE_TEST_SUITE_P(Devices, GroupedQuantizeTest, testing::ValuesIn(AllTargets()), TargetName);

}  // namespace
}  // namespace trimtab
