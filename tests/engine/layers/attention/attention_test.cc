// Attention whose heads are split over tensor-parallel ranks makes what all heads make on one.
#include "engine/layers/attention/attention.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/engine/layers/layer_cases.h"

namespace trimtab {
namespace {

constexpr int64_t kWidth = 64;
constexpr int64_t kHeads = 4;
constexpr int64_t kHeadSize = kWidth / kHeads;
// Two GEMMs in fp8 follow one another: the largest error is 0.10.
constexpr LayerTolerances kTolerances = {.fp8 = 0.12};

WholeLayer RunOn(const std::string& layout) {
  ModelConfig model;
  model.hidden_size = kWidth;
  model.num_heads = model.num_kv_heads = kHeads;
  model.num_layers = 1;
  model.max_sequence_length = kLayerTokens;
  model.init_std = 0.3;
  return RunLayer(model, layout, {.in = kWidth, .out = kWidth},
                  [](ParameterStore& store, const LayerContext& context) -> LayerPass {
                    const auto attention = std::make_shared<SelfAttention>(
                        store, context, "attention", context.model.layer(0).attention());
                    return [attention](const LayerContext& on, Tensor x, Tensor dy) {
                      SelfAttentionSaved saved;
                      const Tensor y = attention->Forward(on, x, saved, /*residual=*/{});
                      return std::pair(y, attention->Backward(on, saved, dy, /*accumulate=*/false));
                    };
                  });
}

std::vector<double> Linear(const WholeLayer& layer, const std::string& name,
                           const std::vector<double>& x) {
  std::vector<double> y = TimesTransposed(x, layer.weights.at(name + ".weight"), kWidth);
  const std::vector<double>& bias = layer.weights.at(name + ".bias");
  for (size_t i = 0; i < y.size(); ++i) y[i] += bias[i % bias.size()];
  return y;
}

/// Causal attention over each of the two sequences, head by head.
std::vector<double> Dense(const WholeLayer& layer) {
  const std::vector<double> qkv = Linear(layer, "attention.linear_qkv", layer.x);
  const auto at = [&](int64_t token, int64_t matrix, int64_t head, int64_t i) {
    return qkv[static_cast<size_t>(token * 3 * kWidth + matrix * kWidth + head * kHeadSize + i)];
  };
  std::vector<double> heads(layer.x.size());
  for (int64_t token = 0; token < kLayerTokens; ++token) {
    const int64_t first = token / (kLayerTokens / 2) * (kLayerTokens / 2);
    for (int64_t head = 0; head < kHeads; ++head) {
      std::vector<double> weights;
      double sum = 0;
      for (int64_t key = first; key <= token; ++key) {
        double score = 0;
        for (int64_t i = 0; i < kHeadSize; ++i)
          score += at(token, 0, head, i) * at(key, 1, head, i);
        weights.push_back(std::exp(score / std::sqrt(kHeadSize)));
        sum += weights.back();
      }
      for (int64_t key = first; key <= token; ++key) {
        for (int64_t i = 0; i < kHeadSize; ++i) {
          heads[static_cast<size_t>(token * kWidth + head * kHeadSize + i)] +=
              weights[static_cast<size_t>(key - first)] / sum * at(key, 2, head, i);
        }
      }
    }
  }
  return Linear(layer, "attention.linear_proj", heads);
}

class AttentionTest : public testing::TestWithParam<std::string> {};

TEST_P(AttentionTest, IsThatOfOneRank) {
  const WholeLayer layer = RunOn(GetParam());
  const WholeLayer alone = RunOn("tp=1,precision=fp32");
  ExpectSameLayer(layer, Dense(layer), alone, kTolerances.Of(GetParam()));
}

INSTANTIATE_TEST_SUITE_P(Layouts, AttentionTest, testing::ValuesIn(LayerLayouts()),
                         [](const auto& test) { return LayoutTestName(test.param); });

}  // namespace
}  // namespace trimtab
