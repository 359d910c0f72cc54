#include "engine/ops/activation.h"

#include <cmath>
#include <numbers>

#include "tests/engine/ops/op_test.h"

namespace trimtab {
namespace {

double GeluReference(double x) {
  const double u = std::sqrt(2.0 / std::numbers::pi) * (x + 0.044715 * x * x * x);
  return 0.5 * x * (1.0 + std::tanh(u));
}

double SiluReference(double x) { return x / (1.0 + std::exp(-x)); }

using ActivationTest = OpTest;

TEST_P(ActivationTest, GeluMatchesItsFormula) {
  for (const int64_t count : {1, 3, 17, 65, 40001}) {
    if (Skips(count)) continue;
    const auto x = Values(count, 1, 6.0f);
    std::vector<double> expected;
    for (const float value : x) expected.push_back(GeluReference(value));
    Tensor y = Output({count});
    GeluForward(Input({count}, x), y);
    ExpectClose(Read(y), expected, tolerance().elementwise, "gelu");
  }
}

TEST_P(ActivationTest, GeluSaturates) {
  const std::vector<float> x = {-1000.0f, -50.0f, -10.0f, 0.0f, 10.0f, 50.0f, 1000.0f};
  Tensor y = Output({7});
  GeluForward(Input({7}, x), y);
  ExpectClose(Read(y), std::vector<double>{0, 0, 0, 0, 10, 50, 1000}, tolerance().elementwise,
              "gelu");
  Tensor dx = Output({7});
  GeluBackward(Input({7}, x), Input({7}, std::vector<float>(7, 1.0f)), dx);
  ExpectClose(Read(dx), std::vector<double>{0, 0, 0, 0.5, 1, 1, 1}, tolerance().elementwise,
              "gelu'");
}

TEST_P(ActivationTest, GeluBackwardIsItsDerivative) {
  for (const int64_t count : {1, 17, 65, 1027}) {
    const auto x = Values(count, 2, 5.0f);
    const auto dy = Values(count, 3);
    std::vector<double> expected;
    for (size_t i = 0; i < x.size(); ++i) {
      const auto slope = NumericGradient({x[i]}, [](auto v) { return GeluReference(v[0]); });
      expected.push_back(dy[i] * slope[0]);
    }
    const Tensor x_device = Input({count}, x);
    const Tensor dy_device = Input({count}, dy);
    Tensor dx = Output({count});
    GeluBackward(x_device, dy_device, dx);
    ExpectClose(Read(dx), expected, tolerance().elementwise, "dx");
    Tensor in_place = dy_device;
    GeluBackward(x_device, dy_device, in_place);
    ExpectClose(Read(in_place), expected, tolerance().elementwise, "dx over dy");
  }
}

TEST_P(ActivationTest, SwiGluMatchesItsFormulaAndDerivative) {
  for (const int64_t rows : {1, 3, 65}) {
    for (const int64_t columns : {1, 17, 130}) {
      const auto gate_up = Values(rows * 2 * columns, 4, 5.0f);
      const auto dy = Values(rows * columns, 5);
      std::vector<double> expected_y;
      std::vector<double> expected_d(gate_up.size());
      for (int64_t row = 0; row < rows; ++row) {
        for (int64_t j = 0; j < columns; ++j) {
          const auto gate = static_cast<size_t>(row * 2 * columns + j);
          const size_t up = gate + static_cast<size_t>(columns);
          const double d = dy[static_cast<size_t>(row * columns + j)];
          expected_y.push_back(SiluReference(gate_up[gate]) * gate_up[up]);
          const auto slope =
              NumericGradient({gate_up[gate]}, [](auto v) { return SiluReference(v[0]); });
          expected_d[gate] = d * slope[0] * gate_up[up];
          expected_d[up] = d * SiluReference(gate_up[gate]);
        }
      }
      const Tensor gate_up_device = Input({rows, 2 * columns}, gate_up);
      Tensor y = Output({rows, columns});
      SwiGluForward(gate_up_device, y);
      ExpectClose(Read(y), expected_y, tolerance().elementwise, "y");
      Tensor dgate_up = Output({rows, 2 * columns});
      SwiGluBackward(gate_up_device, Input({rows, columns}, dy), dgate_up);
      ExpectClose(Read(dgate_up), expected_d, tolerance().elementwise, "dgate_up");
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, ActivationTest, testing::ValuesIn(AllTargets()), TargetName);

}  // namespace
}  // namespace trimtab
