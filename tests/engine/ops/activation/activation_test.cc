#include "engine/ops/activation/activation.h"

#include <fmt/format.h>

#include <algorithm>
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

struct Function {
  ActivationFunction function;
  const char* name;
  double (*reference)(double x);
  /// What it is multiplied by in a gated call.
  double (*factor)(double up) = [](double up) { return up; };
};
const Function kFunctions[] = {
    {ActivationFunction::kGelu, "gelu", GeluReference},
    {ActivationFunction::kGeluErf, "gelu_erf",
     [](double x) { return 0.5 * x * std::erfc(-x / std::numbers::sqrt2); }},
    {ActivationFunction::kRelu, "relu", [](double x) { return std::max(x, 0.0); }},
    {ActivationFunction::kSquaredRelu, "squared_relu",
     [](double x) { return std::max(x, 0.0) * std::max(x, 0.0); }},
    {ActivationFunction::kSilu, "silu", SiluReference},
    {ActivationFunction::kClampedSwish, "clamped_swish",
     [](double x) { return SiluReference(1.702 * std::min(x, 7.0)) / 1.702; },
     [](double up) { return 1.0 + std::clamp(up, -7.0, 7.0); }},
};

/// By central differences, away from 0 and 7, where functions have corners.
double Slope(double (*function)(double), double x) {
  return NumericGradient({x}, [function](auto v) { return function(v[0]); })[0];
}

class ActivationTest : public OpTest {
 protected:
  std::vector<float> ValuesOffCorners(int64_t count, uint32_t seed) const {
    std::vector<float> values = Values(count, seed, 9.0f);
    for (float& value : values) value = std::abs(value) == 7.0f ? value / 2 : value;
    return values;
  }
};

TEST_P(ActivationTest, MatchesItsFormula) {
  for (const Function& f : kFunctions) {
    for (const int64_t count : {1, 3, 17, 65, 40001}) {
      if (Skips(count)) continue;
      const auto x = Values(count, 1, 6.0f);
      std::vector<double> expected;
      for (const float value : x) expected.push_back(f.reference(value));
      Tensor y = Output({count});
      ActivationForward(f.function, Input({count}, x), y);
      ExpectClose(Read(y), expected, tolerance().elementwise, f.name);
    }
  }
}

TEST_P(ActivationTest, GeluSaturates) {
  const std::vector<float> x = {-1000.0f, -50.0f, -10.0f, 0.0f, 10.0f, 50.0f, 1000.0f};
  Tensor y = Output({7});
  ActivationForward(ActivationFunction::kGelu, Input({7}, x), y);
  ExpectClose(Read(y), std::vector<double>{0, 0, 0, 0, 10, 50, 1000}, tolerance().elementwise,
              "gelu");
  Tensor dx = Output({7});
  ActivationBackward(ActivationFunction::kGelu, Input({7}, x),
                     Input({7}, std::vector<float>(7, 1.0f)), dx);
  ExpectClose(Read(dx), std::vector<double>{0, 0, 0, 0.5, 1, 1, 1}, tolerance().elementwise,
              "gelu'");
}

TEST_P(ActivationTest, BackwardIsItsDerivative) {
  for (const Function& f : kFunctions) {
    for (const int64_t count : {1, 17, 65, 1027}) {
      const auto x = ValuesOffCorners(count, 2);
      const auto dy = Values(count, 3);
      std::vector<double> expected;
      for (size_t i = 0; i < x.size(); ++i) expected.push_back(dy[i] * Slope(f.reference, x[i]));
      const Tensor x_device = Input({count}, x);
      const Tensor dy_device = Input({count}, dy);
      Tensor dx = Output({count});
      ActivationBackward(f.function, x_device, dy_device, dx);
      ExpectClose(Read(dx), expected, tolerance().elementwise, f.name);
      Tensor in_place = dy_device;
      ActivationBackward(f.function, x_device, dy_device, in_place);
      ExpectClose(Read(in_place), expected, tolerance().elementwise,
                  fmt::format("{}, dx over dy", f.name));
    }
  }
}

TEST_P(ActivationTest, GatedMatchesItsFormulaAndDerivative) {
  for (const Function& f : kFunctions) {
    for (const auto& [rows, columns] :
         {std::pair<int64_t, int64_t>{1, 1}, {3, 17}, {65, 17}, {1, 130}, {65, 130}}) {
      const auto gate_up = ValuesOffCorners(rows * 2 * columns, 4);
      const auto dy = Values(rows * columns, 5);
      std::vector<double> expected_y;
      std::vector<double> expected_d(gate_up.size());
      for (int64_t row = 0; row < rows; ++row) {
        for (int64_t j = 0; j < columns; ++j) {
          const auto gate = static_cast<size_t>(row * 2 * columns + j);
          const size_t up = gate + static_cast<size_t>(columns);
          const double d = dy[static_cast<size_t>(row * columns + j)];
          expected_y.push_back(f.reference(gate_up[gate]) * f.factor(gate_up[up]));
          expected_d[gate] = d * Slope(f.reference, gate_up[gate]) * f.factor(gate_up[up]);
          expected_d[up] = d * f.reference(gate_up[gate]) * Slope(f.factor, gate_up[up]);
        }
      }
      const Tensor gate_up_device = Input({rows, 2 * columns}, gate_up);
      Tensor y = Output({rows, columns});
      GatedActivationForward(f.function, gate_up_device, y);
      ExpectClose(Read(y), expected_y, tolerance().elementwise, f.name);
      Tensor dgate_up = Output({rows, 2 * columns});
      GatedActivationBackward(f.function, gate_up_device, Input({rows, columns}, dy), dgate_up);
      ExpectClose(Read(dgate_up), expected_d, tolerance().elementwise,
                  fmt::format("{}, gradient", f.name));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, ActivationTest, testing::ValuesIn(AllTargets()), TargetName);

}  // namespace
}  // namespace trimtab
