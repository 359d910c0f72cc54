// Routers choose the experts, and dispatchers carry tokens there and back, as on one rank. Experts
// here multiply what they get by their number, so a token with the wrong one shows.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "engine/layers/moe/moe_dispatcher.h"
#include "engine/layers/moe/moe_router.h"
#include "engine/ops/elementwise/elementwise.h"
#include "tests/engine/layers/layer_cases.h"

namespace trimtab {
namespace {

constexpr int64_t kWidth = 64;
constexpr int64_t kExperts = 8;
constexpr int64_t kChosen = 2;
// The router's gradient is a small difference between sums that were rounded to bf16: its error
// is 0.018. Nothing here is fp8.
constexpr LayerTolerances kTolerances = {.bf16 = 0.02, .fp8 = 0.02};

/// Multiplies each row by one more than the number of its expert; each rank that shares it makes a
/// part of that.
void MultiplyByExpert(const LayerContext& context, const MoeDispatch& dispatch, Tensor& rows) {
  const int64_t first = context.parallel.ep_rank * (kExperts / context.parallel.layout.ep);
  std::vector<float> values(static_cast<size_t>(rows.numel()));
  CopyToHost(rows, values);
  size_t at = 0;
  for (size_t expert = 0; expert < dispatch.expert_rows.size(); ++expert) {
    const auto factor = static_cast<float>(first + static_cast<int64_t>(expert) + 1) /
                        static_cast<float>(context.parallel.layout.etp);
    for (int64_t i = 0; i < dispatch.expert_rows[expert] * kWidth; ++i) values[at++] *= factor;
  }
  CopyFromHost(rows, values);
}

WholeLayer RunOn(const std::string& layout) {
  ModelConfig model;
  model.hidden_size = kWidth;
  model.num_heads = model.num_kv_heads = 1;
  model.num_layers = 1;
  model.init_std = 0.3;
  model.moe = {.num_experts = kExperts, .router_topk = kChosen, .ffn_hidden_size = 16};
  return RunLayer(model, layout, {.in = kWidth, .out = kWidth},
                  [](ParameterStore& store, const LayerContext& context) -> LayerPass {
                    const auto router = std::make_shared<MoeRouter>(
                        store, "router", std::get<MoeSpec>(context.model.layer(0).mlp));
                    return [router](const LayerContext& on, Tensor x, Tensor dy) {
                      MoeRouterSaved saved;
                      MoeDispatch dispatch;
                      const Tensor kept =
                          router->Forward(on, x, saved).Rows(on.row_begin(), on.rows());
                      const Tensor weights = saved.weights.Rows(on.row_begin(), on.rows());
                      Tensor rows = DispatchTokens(on, on.model.moe, x, kept, dispatch);
                      MultiplyByExpert(on, dispatch, rows);
                      ReturnResults(on, rows, dispatch);
                      const Tensor y = CombineTokens(on, dispatch, weights);
                      Tensor dweights;
                      Tensor drows = CombineTokensBackward(on, dispatch, weights, dy, dweights);
                      MultiplyByExpert(on, dispatch, drows);
                      Tensor dx = DispatchTokensBackward(on, dispatch, drows);
                      router->Backward(on, saved, dweights, dx, /*accumulate=*/false);
                      return std::pair(y, dx);
                    };
                  });
}

/// Multiplies each token by the sum over its experts of weight times number.
std::vector<double> Dense(const WholeLayer& layer) {
  const std::vector<double> logits =
      TimesTransposed(layer.x, layer.weights.at("router.weight"), kWidth);
  std::vector<double> y = layer.x;
  for (int64_t token = 0; token < kLayerTokens; ++token) {
    const double* row = logits.data() + token * kExperts;
    std::vector<int64_t> order(kExperts);
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return row[a] > row[b]; });
    double sum = 0;
    double factor = 0;
    for (int64_t i = 0; i < kChosen; ++i) {
      sum += std::exp(row[order[static_cast<size_t>(i)]]);
      factor += std::exp(row[order[static_cast<size_t>(i)]]) *
                static_cast<double>(order[static_cast<size_t>(i)] + 1);
    }
    for (int64_t i = 0; i < kWidth; ++i) y[static_cast<size_t>(token * kWidth + i)] *= factor / sum;
  }
  return y;
}

class MoeRoutingTest : public testing::TestWithParam<std::string> {};

TEST_P(MoeRoutingTest, IsThatOfOneRank) {
  const WholeLayer layer = RunOn(GetParam());
  const WholeLayer alone = RunOn("tp=1,precision=fp32");
  ExpectSameLayer(layer, Dense(layer), alone, kTolerances.Of(GetParam()));
}

std::vector<std::string> Layouts() {
  std::vector<std::string> layouts = LayerLayouts();
  for (const char* experts :
       {"dp=2,ep=2,precision=fp32", "dp=4,ep=4,precision=bf16",
        "tp=2,sp=1,ep=2,etp=1,precision=fp32", "tp=2,sp=1,dp=2,ep=4,etp=1,precision=fp32",
        "dp=4,ep=2,etp=2,precision=fp32"}) {
    layouts.push_back(experts);
  }
  return layouts;
}

INSTANTIATE_TEST_SUITE_P(Layouts, MoeRoutingTest, testing::ValuesIn(Layouts()),
                         [](const auto& test) { return LayoutTestName(test.param); });

}  // namespace
}  // namespace trimtab
