#include "engine/ops/norm/norm.h"

#include <cmath>

#include "tests/engine/ops/op_test.h"

namespace trimtab {
namespace {

constexpr double kEpsilon = 1e-5;

struct NormCase {
  int64_t rows, columns;
};
constexpr NormCase kCases[] = {{1, 1}, {3, 17}, {17, 3}, {65, 5}, {2, 130}, {67, 7}};

struct Statistics {
  double mean, rstd;
};

Statistics StatisticsOf(std::span<const double> row, bool centered) {
  double mean = 0;
  if (centered) {
    for (const double value : row) mean += value / static_cast<double>(row.size());
  }
  double square = 0;
  for (const double value : row) {
    square += (value - mean) * (value - mean) / static_cast<double>(row.size());
  }
  return {mean, 1.0 / std::sqrt(square + kEpsilon)};
}

struct Kind {
  bool layer_norm;
  bool bias;
  bool plus_one;
};
constexpr Kind kLayerNorms[] = {{true, true, false}, {true, false, false}, {true, true, true}};
constexpr Kind kRmsNorms[] = {{false, false, false}, {false, false, true}};

// `bias` may be empty.
std::vector<double> Reference(const NormCase& c, const Kind& kind, std::span<const double> x,
                              std::span<const double> weight, std::span<const double> bias) {
  std::vector<double> y(x.size());
  for (int64_t row = 0; row < c.rows; ++row) {
    const auto begin = static_cast<size_t>(row * c.columns);
    const auto statistics =
        StatisticsOf(x.subspan(begin, static_cast<size_t>(c.columns)), kind.layer_norm);
    for (size_t j = 0; j < weight.size(); ++j) {
      y[begin + j] = (x[begin + j] - statistics.mean) * statistics.rstd *
                         (weight[j] + (kind.plus_one ? 1.0 : 0.0)) +
                     (bias.empty() ? 0.0 : bias[j]);
    }
  }
  return y;
}

// Runs one norm forward and backward and checks every output.
class NormTest : public OpTest {
 protected:
  void Check(const NormCase& c, const Kind& kind, bool accumulate) {
    const auto [layer_norm, with_bias, plus_one] = kind;
    const Shape matrix = {c.rows, c.columns};
    const Shape vector = {c.columns};
    const auto x = Values(matrix.numel(), 1, 3.0f);
    const auto weight = Values(c.columns, 2);
    const auto bias = with_bias ? Values(c.columns, 3) : std::vector<float>{};
    const auto dy = Values(matrix.numel(), 4);
    const auto dx_before = Values(matrix.numel(), 5);
    const auto dweight_before = GradientValues(c.columns, 6);
    const auto dbias_before = GradientValues(c.columns, 7);

    const Tensor x_device = Input(matrix, x);
    const Tensor weight_device = Input(vector, weight);
    const Tensor dy_device = Input(matrix, dy);
    Tensor y = Output(matrix);
    Tensor mean = Output({c.rows}, DType::kF32);
    Tensor rstd = Output({c.rows}, DType::kF32);
    Tensor dx = Input(matrix, dx_before);
    const DType g = gradient_dtype();
    Tensor dweight = accumulate ? Input(vector, dweight_before, g) : Output(vector, g);
    Tensor dbias;
    if (with_bias) dbias = accumulate ? Input(vector, dbias_before, g) : Output(vector, g);
    const NormOptions options(kEpsilon, plus_one);
    if (layer_norm) {
      LayerNormForward(x_device, weight_device, with_bias ? Input(vector, bias) : Tensor(), options,
                       y, mean, rstd);
      LayerNormBackward(dy_device, x_device, weight_device, mean, rstd, dx, dweight, dbias,
                        accumulate, plus_one);
    } else {
      RmsNormForward(x_device, weight_device, options, y, rstd);
      RmsNormBackward(dy_device, x_device, weight_device, rstd, dx, dweight, accumulate, plus_one);
    }

    const auto x64 = ToDouble(x);
    const auto weight64 = ToDouble(weight);
    const auto bias64 = ToDouble(bias);
    const auto dy64 = ToDouble(dy);
    ExpectClose(Read(y), Reference(c, kind, x64, weight64, bias64), tolerance().reduction, "y");
    CheckStatistics(c, x64, layer_norm, mean, rstd);

    auto expected_dx = NumericGradient(x64, [&](std::span<const double> v) {
      return Dot(Reference(c, kind, v, weight64, bias64), dy64);
    });
    for (size_t i = 0; i < x.size(); ++i) expected_dx[i] += dx_before[i];
    ExpectClose(Read(dx), expected_dx, tolerance().reduction, "dx");
    auto expected_dweight = NumericGradient(weight64, [&](std::span<const double> v) {
      return Dot(Reference(c, kind, x64, v, bias64), dy64);
    });
    AddIf(accumulate, dweight_before, expected_dweight);
    ExpectClose(Read(dweight), expected_dweight, tolerance(g).reduction, "dweight");
    if (!with_bias) return;
    auto expected_dbias = NumericGradient(bias64, [&](std::span<const double> v) {
      return Dot(Reference(c, kind, x64, weight64, v), dy64);
    });
    AddIf(accumulate, dbias_before, expected_dbias);
    ExpectClose(Read(dbias), expected_dbias, tolerance(g).reduction, "dbias");
  }

 private:
  void CheckStatistics(const NormCase& c, std::span<const double> x, bool layer_norm,
                       const Tensor& mean, const Tensor& rstd) {
    std::vector<double> means;
    std::vector<double> rstds;
    for (int64_t row = 0; row < c.rows; ++row) {
      const auto statistics = StatisticsOf(
          x.subspan(static_cast<size_t>(row * c.columns), static_cast<size_t>(c.columns)),
          layer_norm);
      means.push_back(statistics.mean);
      rstds.push_back(statistics.rstd);
    }
    if (layer_norm) ExpectClose(Read(mean), means, tolerance(DType::kF32).reduction, "mean");
    ExpectClose(Read(rstd), rstds, tolerance(DType::kF32).reduction, "rstd");
  }

  static void AddIf(bool accumulate, std::span<const float> before, std::span<double> expected) {
    if (!accumulate) return;
    for (size_t i = 0; i < before.size(); ++i) expected[i] += before[i];
  }
};

TEST_P(NormTest, LayerNormMatchesItsFormulaAndDerivative) {
  for (const NormCase& c : kCases) {
    if (c.columns == 1) continue;  // x - mean is 0: rstd is 1/sqrt(epsilon), all is rounding
    for (const Kind& kind : kLayerNorms) {
      Check(c, kind, false);
      Check(c, kind, true);
    }
  }
}

TEST_P(NormTest, RmsNormMatchesItsFormulaAndDerivative) {
  for (const NormCase& c : kCases) {
    for (const Kind& kind : kRmsNorms) {
      Check(c, kind, false);
      Check(c, kind, true);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, NormTest, testing::ValuesIn(AllTargets()), TargetName);

}  // namespace
}  // namespace trimtab
