// Norms make, of the rows that a rank has, what they make of all rows.
#include "engine/layers/norm.h"

#include <gtest/gtest.h>

#include <cmath>

#include "engine/ops/elementwise/elementwise.h"
#include "tests/engine/layers/layer_cases.h"

namespace trimtab {
namespace {

constexpr int64_t kWidth = 64;
constexpr LayerTolerances kTolerances = {.fp8 = 0.01};  // norms stay in bf16

using Case = std::tuple<NormKind, std::string>;

class NormTest : public testing::TestWithParam<Case> {
 protected:
  static WholeLayer RunOn(const std::string& layout) {
    ModelConfig model;
    model.hidden_size = kWidth;
    model.norm = std::get<0>(GetParam());
    return RunLayer(model, layout, {.in = kWidth, .out = kWidth},
                    [](ParameterStore& store, const LayerContext& context) -> LayerPass {
                      const auto norm =
                          std::make_shared<Norm>(store, "norm", context.model.norm_spec(), kWidth);
                      return [norm](const LayerContext& on, Tensor x, Tensor dy) {
                        NormSaved saved;
                        const LinearOperand y = norm->Forward(on, x, saved);
                        Tensor dx = on.New(x.shape(), MemoryTag::kWorkspace);
                        Fill(dx, 0.0f);
                        norm->Backward(on, x, saved, dy, dx, /*accumulate=*/false);
                        return std::pair(y.matrix, dx);
                      };
                    });
  }
};

/// Rows less their mean (LayerNorm), of mean square 1, times the weight, plus the bias.
std::vector<double> Dense(const WholeLayer& layer, bool centred) {
  std::vector<double> y = layer.x;
  for (size_t row = 0; row < y.size(); row += kWidth) {
    double mean = 0;
    double square = 0;
    for (size_t i = 0; i < kWidth; ++i) mean += centred ? y[row + i] / kWidth : 0;
    for (size_t i = 0; i < kWidth; ++i)
      square += (y[row + i] - mean) * (y[row + i] - mean) / kWidth;
    for (size_t i = 0; i < kWidth; ++i) {
      y[row + i] =
          (y[row + i] - mean) / std::sqrt(square + 1e-5) * layer.weights.at("norm.weight")[i];
      if (centred) y[row + i] += layer.weights.at("norm.bias")[i];
    }
  }
  return y;
}

TEST_P(NormTest, IsThatOfOneRank) {
  const auto& [kind, layout] = GetParam();
  const WholeLayer layer = RunOn(layout);
  const WholeLayer alone = RunOn("tp=1,precision=fp32");
  ExpectSameLayer(layer, Dense(layer, kind == NormKind::kLayerNorm), alone, kTolerances.Of(layout));
  // A uniform change of the weight changes the sum of dy * (y - bias) alike.
  double sum = 0;
  for (size_t i = 0; i < alone.y.size(); ++i) sum += alone.dy[i] * alone.y[i];
  double weights = 0;
  for (const double each : alone.gradients.at("norm.weight")) weights += each;
  EXPECT_NEAR(weights, sum, 1e-4 * std::abs(sum));
}

INSTANTIATE_TEST_SUITE_P(Layouts, NormTest,
                         testing::Combine(testing::Values(NormKind::kLayerNorm, NormKind::kRmsNorm),
                                          testing::ValuesIn(LayerLayouts())),
                         [](const auto& test) {
                           const bool rms = std::get<0>(test.param) == NormKind::kRmsNorm;
                           return (rms ? "rms_" : "layer_") +
                                  LayoutTestName(std::get<1>(test.param));
                         });

}  // namespace
}  // namespace trimtab
