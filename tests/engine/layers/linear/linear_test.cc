// Linear layers split over tensor-parallel ranks make what one dense matrix makes.
#include "engine/layers/linear/linear.h"

#include <gtest/gtest.h>

#include "tests/engine/layers/layer_cases.h"

namespace trimtab {
namespace {

constexpr int64_t kIn = 64;
constexpr int64_t kOut = 128;
constexpr double kInitStd = 0.3;

class LinearTest : public testing::TestWithParam<std::string> {
 protected:
  static ModelConfig Model() {
    ModelConfig model;
    model.hidden_size = kIn;
    return model;
  }

  /// y = x W^T + b, and its gradients.
  void ExpectDense(const WholeLayer& layer, const std::string& name) const {
    const double tolerance = LayerTolerances().Of(GetParam());
    const std::vector<double>& weight = layer.weights.at(name + ".weight");
    std::vector<double> y = TimesTransposed(layer.x, weight, kIn);
    std::vector<double> dbias(static_cast<size_t>(kOut));
    for (size_t i = 0; i < y.size(); ++i) {
      y[i] += layer.weights.at(name + ".bias")[i % kOut];
      dbias[i % kOut] += layer.dy[i];
    }
    EXPECT_LT(RelativeError(layer.y, y), tolerance);
    EXPECT_LT(RelativeError(layer.dx, TimesTransposed(layer.dy, Transposed(weight, kIn), kOut)),
              tolerance);
    EXPECT_LT(RelativeError(layer.gradients.at(name + ".weight"),
                            TransposedTimes(layer.dy, layer.x, kLayerTokens)),
              tolerance);
    EXPECT_LT(RelativeError(layer.gradients.at(name + ".bias"), dbias), tolerance);
  }
};

/// Both passes of a linear layer.
template <typename Linear>
LayerPass Passes(std::shared_ptr<Linear> linear) {
  return [linear](const LayerContext& context, Tensor x, Tensor dy) {
    LinearSaved saved;
    const Tensor y = linear->Forward(context, x, MemoryTag::kActivations, saved);
    const Tensor dx = linear->Backward(context, saved, dy, /*accumulate=*/false);
    return std::pair(y, dx);
  };
}

TEST_P(LinearTest, ColumnsAreThoseOfOneMatrix) {
  const WholeLayer layer =
      RunLayer(Model(), GetParam(), {.in = kIn, .out = kOut, .output = Held::kColumns},
               [](ParameterStore& store, const LayerContext& context) {
                 return Passes(std::make_shared<ColumnParallelLinear>(
                     store, context, "column", kIn, RowBlocks{kOut}, /*bias=*/true, kInitStd));
               });
  ExpectDense(layer, "column");
}

TEST_P(LinearTest, PartialSumsAddUpToOneMatrix) {
  const WholeLayer layer =
      RunLayer(Model(), GetParam(), {.in = kIn, .out = kOut, .input = Held::kColumns},
               [](ParameterStore& store, const LayerContext& context) {
                 return Passes(std::make_shared<RowParallelLinear>(store, context, "row", kIn, kOut,
                                                                   /*bias=*/true, kInitStd));
               });
  ExpectDense(layer, "row");
}

INSTANTIATE_TEST_SUITE_P(Layouts, LinearTest, testing::ValuesIn(LayerLayouts()),
                         [](const auto& test) { return LayoutTestName(test.param); });

}  // namespace
}  // namespace trimtab
