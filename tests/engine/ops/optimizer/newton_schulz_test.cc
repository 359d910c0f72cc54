#include "engine/ops/optimizer/newton_schulz.h"

#include <cmath>

#include "tests/engine/ops/op_test.h"

namespace trimtab {
namespace {

class NewtonSchulzTest : public OpTest {};

TEST_P(NewtonSchulzTest, NormalizeDividesByTheNorm) {
  for (const int64_t count : {1, 7, 3000}) {
    const std::vector<float> values = Values(count, 1);
    std::vector<double> expected = ToDouble(values);
    for (double& value : expected) value /= std::sqrt(6.25) + 0.5;
    Tensor x = Input({count}, values);
    Normalize(Input({1}, std::vector<float>{6.25f}, DType::kF32), 0.5f, x);
    ExpectClose(Read(x), expected, tolerance().elementwise, "x");
  }
}

TEST_P(NewtonSchulzTest, QuinticAddsUpPowers) {
  for (const int64_t rows : {1, 3, 40, 65}) {
    const int64_t count = rows * rows;
    const std::vector<float> gram = Values(count, 1);
    const std::vector<float> squared = Values(count, 2);
    std::vector<double> expected;
    for (int64_t i = 0; i < count; ++i) {
      const auto at = static_cast<size_t>(i);
      const double diagonal = i / rows == i % rows ? 3.5 : 0.0;
      expected.push_back(diagonal - 4.75 * static_cast<double>(gram[at]) +
                         2.0 * static_cast<double>(squared[at]));
    }
    Tensor result = Input({rows, rows}, squared);
    Quintic({.a = 3.5f, .b = -4.75f, .c = 2.0f}, Input({rows, rows}, gram), result);
    ExpectClose(Read(result), expected, tolerance().elementwise, "result");
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, NewtonSchulzTest, testing::ValuesIn(AllTargets()), TargetName);

}  // namespace
}  // namespace trimtab
