// A head whose vocabulary is split over tensor-parallel ranks makes the logits, the loss and the
// gradients of a whole one.
#include "engine/layers/lm_head.h"

#include <gtest/gtest.h>

#include <cmath>

#include "engine/layers/embedding.h"
#include "tests/engine/layers/layer_cases.h"

namespace trimtab {
namespace {

constexpr int64_t kWidth = 64;
constexpr int64_t kVocab = 96;
constexpr LayerTolerances kTolerances = {.fp8 = 0.01};  // the head stays in bf16

int32_t TargetOf(int64_t token) { return static_cast<int32_t>(token * 37 % kVocab); }

struct HeadRun {
  WholeLayer layer;
  double loss = 0;
};

HeadRun RunOn(const std::string& layout) {
  ModelConfig model;
  model.vocab_size = kVocab;
  model.hidden_size = kWidth;
  model.num_layers = 1;
  model.tied_embeddings = false;
  model.init_std = 0.3;
  model.make_vocab_size_divisible_by = 8;
  HeadRun run;
  run.layer =
      RunLayer(model, layout, {.in = kWidth, .out = kVocab, .output = Held::kColumns},
               [&run](ParameterStore& store, const LayerContext& context) -> LayerPass {
                 const auto head = std::make_shared<LmHead>(store, context, context.model.head(),
                                                            static_cast<const Embedding*>(nullptr));
                 return [head, &run](const LayerContext& on, Tensor x, Tensor) {
                   std::vector<int32_t> ids;
                   for (int64_t token = 0; token < kLayerTokens; ++token)
                     ids.push_back(TargetOf(token));
                   Tensor targets = Tensor::Empty(on.device, {kLayerTokens}, DType::kI32,
                                                  MemoryTag::kActivations);
                   CopyFromHost(targets, ids);
                   Tensor scale = on.NewF32({1}, MemoryTag::kActivations);
                   Tensor loss = on.NewF32({1}, MemoryTag::kActivations);
                   CopyFromHost(scale, std::vector<float>{1.0f / kLayerTokens});
                   CopyFromHost(loss, std::vector<float>{0.0f});
                   LmHeadSaved saved;
                   Tensor logits;
                   head->Forward(on, x, targets, scale, loss, saved, &logits);
                   if (on.parallel.rank == 0) run.loss = static_cast<double>(loss.f32()[0]);
                   return std::pair(logits, head->Backward(on, x, saved, /*accumulate=*/false));
                 };
               });
  return run;
}

/// Logits of the normalised rows.
std::vector<double> Dense(const WholeLayer& layer) {
  std::vector<double> normed = layer.x;
  for (size_t row = 0; row < normed.size(); row += kWidth) {
    double mean = 0;
    double square = 0;
    for (size_t i = 0; i < kWidth; ++i) mean += normed[row + i] / kWidth;
    for (size_t i = 0; i < kWidth; ++i) {
      square += (normed[row + i] - mean) * (normed[row + i] - mean) / kWidth;
    }
    for (size_t i = 0; i < kWidth; ++i) {
      normed[row + i] = (normed[row + i] - mean) / std::sqrt(square + 1e-5);
    }
  }
  return TimesTransposed(normed, layer.weights.at("output_layer.weight"), kWidth);
}

double LossOf(const std::vector<double>& logits) {
  double loss = 0;
  for (int64_t token = 0; token < kLayerTokens; ++token) {
    const double* row = logits.data() + token * kVocab;
    double sum = 0;
    for (int64_t i = 0; i < kVocab; ++i) sum += std::exp(row[i]);
    loss += std::log(sum) - row[TargetOf(token)];
  }
  return loss;
}

class LmHeadTest : public testing::TestWithParam<std::string> {};

TEST_P(LmHeadTest, IsThatOfOneRank) {
  const HeadRun run = RunOn(GetParam());
  const HeadRun alone = RunOn("tp=1,precision=fp32");
  const double tolerance = kTolerances.Of(GetParam());
  const std::vector<double> logits = Dense(run.layer);
  EXPECT_NEAR(run.loss, LossOf(logits), tolerance * run.loss);
  ExpectSameLayer(run.layer, logits, alone.layer, tolerance);
}

INSTANTIATE_TEST_SUITE_P(Layouts, LmHeadTest, testing::ValuesIn(LayerLayouts()),
                         [](const auto& test) { return LayoutTestName(test.param); });

}  // namespace
}  // namespace trimtab
