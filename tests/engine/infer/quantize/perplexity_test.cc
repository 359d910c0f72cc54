#include "engine/infer/quantize/perplexity.h"

#include <gtest/gtest.h>

#include "engine/checkpoint/safetensors.h"
#include "engine/infer/executor/distributed_executor.h"
#include "tests/engine/infer/golden_weights.h"
#include "tests/engine/train/families.h"

namespace trimtab {
namespace {

/// The samples of the golden run's first step, one after the other; each has a token beyond its
/// own, so the loss over them is that of the step.
struct FirstStep {
  explicit FirstStep(const std::string& family) : weights(family) {
    const SafetensorsReader file("testdata/goldens/" + family + ".safetensors");
    const RunConfig run = GoldenRun(family);
    std::vector<float> all(static_cast<size_t>(file.Find("tokens").numel()));
    file.Read(file.Find("tokens"), 0, all);
    const int64_t count = run.global_batch * (run.sequence_length + 1);
    tokens.assign(all.begin(), all.begin() + count);
    std::vector<float> losses(static_cast<size_t>(file.Find("losses").numel()));
    file.Read(file.Find("losses"), 0, losses);
    loss = losses[0];
    config = GoldenServing(weights);
    config.limits.sequence_length = run.sequence_length + 1;
  }

  double Measure() const {
    const ServingConfig resolved = ResolveServing(config);
    DistributedExecutor runner(resolved, weights);
    return MeanTokenLoss(resolved, runner, tokens);
  }

  GoldenWeights weights;
  std::vector<int32_t> tokens;
  double loss = 0;
  ServingConfig config;
};

TEST(PerplexityTest, OfTheWeightsThemselvesIsTheLossOfTraining) {
  for (const char* family : {"gpt2", "llama", "gemma2"}) {
    FirstStep step(family);
    EXPECT_NEAR(step.Measure(), step.loss, 1e-5 * step.loss) << family;
  }
}

TEST(PerplexityTest, RoundedWeightsAndEntriesForeseeNearlyAsWell) {
  struct Case {
    WeightFormat weights;
    DType cache;
    double tolerance;  // relative, of the loss
  };
  for (const Case& c :
       {Case{WeightFormat::kBf16, DType::kF32, 1e-3}, Case{WeightFormat::kF16, DType::kF16, 1e-3},
        Case{WeightFormat::kInt8, DType::kF32, 2e-3}, Case{WeightFormat::kF8, DType::kF32, 1e-2},
        Case{WeightFormat::kInt4, DType::kF32, 3e-2}, Case{WeightFormat::kF32, DType::kI8, 1e-3},
        Case{WeightFormat::kF32, DType::kF8E4M3, 5e-3},
        Case{WeightFormat::kF32, DType::kBf16, 1e-3}}) {
    FirstStep step("gpt2");
    step.config.weights = c.weights;
    step.config.cache = c.cache;
    const double loss = step.Measure();
    EXPECT_NEAR(loss, step.loss, c.tolerance * step.loss)
        << Name(c.weights) << " " << Name(c.cache);
    EXPECT_NE(loss, step.loss);
  }
}

}  // namespace
}  // namespace trimtab
