// Recomputation takes memory and time, and changes no bit of a result: not a loss, a weight or a
// scale of fp8.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cctype>
#include <tuple>

#include "engine/config/rules/rules.h"
#include "engine/runtime/ranks.h"
#include "tests/engine/train/run_losses.h"

namespace trimtab {
namespace {

constexpr int64_t kSteps = 3;

constexpr const char* kPlans[] = {"full",
                                  "full:block:1",
                                  "full:uniform:2",
                                  "selective:core_attn+layernorm",
                                  "selective:mlp_act+logits",
                                  "selective:core_attn+layernorm+mlp_act+mlp+logits"};

struct NumericsCase {
  const char* name;
  const char* layout;
  const char* fp8_scaling;
};
constexpr NumericsCase kNumerics[] = {{"fp32", "precision=fp32", "delayed"},
                                      {"bf16", "precision=bf16", "delayed"},
                                      {"fp16", "precision=fp16", "delayed"},
                                      {"fp8_delayed", "precision=fp8", "delayed"},
                                      {"fp8_current", "precision=fp8", "current"}};

// A zero-bubble pipeline makes the gradients of weights later than those of activations.
constexpr const char* kLayouts[] = {"mbs=4", "tp=2,sp=1,dp=2,zero=1,mbs=4",
                                    "tp=2,pp=2,mbs=4,schedule=zero-bubble"};

/// What one rank ends with.
struct Outcome {
  std::vector<double> losses;
  std::vector<double> grad_norms;
  std::vector<float> weights;
  std::vector<float> fp8_amax;
  std::vector<float> fp8_scale;

  bool operator==(const Outcome&) const = default;
};

std::vector<Outcome> Train(const RunConfig& run) {
  const auto source = MakeSyntheticSource(run.model.vocab_size, /*seed=*/7);
  std::vector<Outcome> outcomes(static_cast<size_t>(run.layout.world_size()));
  RunRanks(run, [&](Rank& rank) {
    Outcome& outcome = outcomes[static_cast<size_t>(rank.index())];
    Trainer trainer(run, rank.parallel(), rank.device());
    for (int64_t step = 0; step < kSteps; ++step) {
      const StepResult result = trainer.Step(*source, step);
      outcome.losses.push_back(result.loss);
      outcome.grad_norms.push_back(result.grad_norm);
    }
    const Tensor& weights = trainer.shards().weights();
    outcome.weights.resize(static_cast<size_t>(weights.numel()));
    CopyToHost(weights, outcome.weights);
    if (trainer.fp8() == nullptr) return;
    const Fp8Snapshot snapshot = trainer.fp8()->Snapshot();
    outcome.fp8_amax = snapshot.amax;
    outcome.fp8_scale = snapshot.scale;
  });
  return outcomes;
}

using Parameter = std::tuple<bool, NumericsCase, const char*>;

class RecomputeTest : public testing::TestWithParam<Parameter> {};

TEST_P(RecomputeTest, ChangesNoBit) {
  const auto& [llama, numerics, layout] = GetParam();
  RunConfig run = SmallRun(llama);
  if (llama) run.model.ffn_hidden_size = 64;  // fp8 takes multiples of 16 per rank
  run.layout = ParseLayout(fmt::format("{},{}", layout, numerics.layout), 0);
  run.fp8.scaling = numerics.fp8_scaling;
  ASSERT_EQ(FirstBrokenRule(run), nullptr);
  const std::vector<Outcome> expected = Train(run);
  for (const char* plan : kPlans) {
    run.layout.recompute = ParseRecompute(plan, "plan");
    ASSERT_EQ(FirstBrokenRule(run), nullptr) << plan;
    const std::vector<Outcome> actual = Train(run);
    EXPECT_EQ(actual[0].losses, expected[0].losses) << plan;
    EXPECT_EQ(actual[0].grad_norms, expected[0].grad_norms) << plan;
    EXPECT_TRUE(actual == expected) << plan;
  }
}

std::string CaseName(const testing::TestParamInfo<Parameter>& info) {
  const auto& [llama, numerics, layout] = info.param;
  std::string name = fmt::format("{}_{}_{}", llama ? "llama" : "gpt2", numerics.name, layout);
  for (char& c : name) {
    if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
  }
  return name;
}

INSTANTIATE_TEST_SUITE_P(Plans, RecomputeTest,
                         testing::Combine(testing::Bool(), testing::ValuesIn(kNumerics),
                                          testing::ValuesIn(kLayouts)),
                         CaseName);

}  // namespace
}  // namespace trimtab
