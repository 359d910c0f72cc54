#include "cost_model/serving/serving_steps.h"

#include <gtest/gtest.h>

#include <random>

#include "engine/families/load_config.h"

namespace trimtab {
namespace {

constexpr double kRelative = 1e-12;  // sums of numbers in another order

struct Case {
  const char* model;
  ServingLayout layout;
  int64_t even = 1;  // of so many rows every expert gets as many
};

/// What the scheduler would plan.
StepPlan PlanOf(const ServingStep& step) {
  StepPlan plan;
  const auto add = [&plan](int64_t rows, int64_t position) {
    plan.sequences.push_back({.tokens = std::vector<int32_t>(static_cast<size_t>(rows)),
                              .first_position = position,
                              .blocks = {},
                              .logits = 1});
  };
  for (int64_t i = 0; i < step.sequences; ++i) add(1, step.context);
  for (int64_t i = 0; i < step.prompts; ++i) add(step.prompt_tokens, step.prompt_position);
  return plan;
}

void ExpectNear(double a, double b, const char* what) {
  EXPECT_NEAR(a, b, kRelative * std::abs(b)) << what;
}

class ServingStepsTest : public testing::TestWithParam<Case> {};

// What is put together of four recordings is what a recording of the very step says.
TEST_P(ServingStepsTest, AreTheRecordedOnes) {
  const ModelConfig model = LoadModelConfig(GetParam().model);
  ServingRecorder recorder(model, GetParam().layout);
  const ServingSteps steps(model, GetParam().layout, recorder);
  std::mt19937_64 random(7);
  const auto draw = [&random](int64_t most) {
    return static_cast<int64_t>(random() % static_cast<uint64_t>(most + 1));
  };
  for (int trial = 0; trial < 20; ++trial) {
    ServingStep step = {.sequences = draw(40), .context = draw(9000)};
    step.prompts = step.sequences == 0 ? 1 + draw(3) : draw(3);
    if (step.prompts > 0) step.prompt_tokens = 2 + draw(700);
    if (step.prompts > 0) step.prompt_position = draw(5000);
    step.sequences *= GetParam().even;
    step.prompt_tokens *= GetParam().even;
    const ServingWork made = steps.WorkOf(steps.RowsOf(PlanOf(step)));
    const ServingWork recorded = recorder.Record(step);
    ASSERT_EQ(made.products.size(), recorded.products.size());
    for (size_t i = 0; i < made.products.size(); ++i) {
      EXPECT_EQ(made.products[i].weights, recorded.products[i].weights);
      EXPECT_EQ(made.products[i].count, recorded.products[i].count);
      ExpectNear(made.products[i].flops, recorded.products[i].flops, "flops");
    }
    for (size_t i = 0; i < recorded.messages.size(); ++i) {
      ExpectNear(made.messages[i].bytes, recorded.messages[i].bytes, "bytes of messages");
    }
    ExpectNear(made.kv_values, recorded.kv_values, "keys and values");
    ExpectNear(made.attention_flops, recorded.attention_flops, "attention");
    ExpectNear(made.decode_flops, recorded.decode_flops, "attention of decoding rows");
    ExpectNear(made.other_bytes, recorded.other_bytes, "other ops");
    EXPECT_EQ(made.ops, recorded.ops);
    EXPECT_EQ(made.layers, recorded.layers);
    EXPECT_EQ(made.expert_layers, recorded.expert_layers);
    EXPECT_EQ(made.all_tokens, recorded.all_tokens);
    EXPECT_EQ(made.sequences, recorded.sequences);
    EXPECT_EQ(made.prompt_tokens, recorded.prompt_tokens);
    EXPECT_EQ(made.routed_share, recorded.routed_share);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, ServingStepsTest,
                         testing::Values(Case{"llama3-8b", {}}, Case{"llama3-70b", {.tp = 8}},
                                         Case{"gemma2-9b", {.tp = 2}},
                                         Case{"mixtral-8x7b", {.tp = 4}}, Case{"falcon-7b", {}},
                                         Case{"deepseek-v2-lite", {.tp = 2}},
                                         Case{"llama3-8b", {.tp = 4, .sequence_parallel = true}},
                                         Case{"mixtral-8x7b",
                                              {.tp = 4, .sequence_parallel = true, .etp = 4},
                                              /*even=*/16},
                                         Case{"deepseek-v2-lite",
                                              {.tp = 2, .sequence_parallel = true, .ep = 2},
                                              /*even=*/64}));

// With a pipeline the rows go from stage to stage, beside what the layers say.
TEST(ServingSteps, HopsBetweenStages) {
  const ModelConfig model = LoadModelConfig("llama3-8b");
  const ServingLayout layout = {.pp = 4};
  ServingRecorder recorder(model, layout);
  const ServingSteps steps(model, layout, recorder);
  const ServingMessage hop = steps.WorkOf(steps.RowsOf(100, 0, 1)).messages.back();
  EXPECT_EQ(hop.ranks, 2);
  EXPECT_EQ(hop.count, 3);
  EXPECT_EQ(hop.bytes, 100 * model.hidden_size * 2);
}

TEST(ServingSteps, CountAPlansRows) {
  const ModelConfig model = LoadModelConfig("llama3-8b");
  ServingRecorder recorder(model, {});
  const ServingSteps steps(model, {}, recorder);
  StepPlan plan;
  plan.sequences.push_back({.tokens = {1}, .first_position = 10, .blocks = {}, .logits = 1});
  plan.sequences.push_back({.tokens = {1, 2, 3}, .first_position = 4, .blocks = {}, .logits = 0});
  plan.sequences.push_back({.tokens = {1, 2}, .first_position = 0, .blocks = {}, .logits = 1});
  const StepRows rows = steps.RowsOf(plan);
  EXPECT_EQ(rows.decodes, 1);
  EXPECT_EQ(rows.prompt_rows, 5);
  EXPECT_EQ(rows.outputs, 2);
  const auto layers = static_cast<double>(model.num_layers);
  EXPECT_EQ(rows.keys, layers * (11 + 7 + 2));
  EXPECT_EQ(rows.scores, layers * (11 + (5 + 6 + 7) + (1 + 2)));
}

// Rows of proposed tokens read what is in the cache together with the row that they follow.
TEST(ServingSteps, CountWhatIsProposed) {
  const ModelConfig model = LoadModelConfig("llama3-8b");
  ServingRecorder recorder(model, {});
  const ServingSteps steps(model, {}, recorder);
  StepPlan plan;
  plan.sequences.push_back({.tokens = {1, 2, 3}, .first_position = 10, .blocks = {}, .logits = 3});
  plan.sequences.push_back({.tokens = {1, 2}, .first_position = 5, .blocks = {}, .logits = 1});
  const auto layers = static_cast<double>(model.num_layers);
  const StepRows rows = steps.RowsOf(plan);
  EXPECT_EQ(rows.decodes, 1);
  EXPECT_EQ(rows.proposed, 2);
  EXPECT_EQ(rows.prompt_rows, 2);
  EXPECT_EQ(rows.outputs, 4);
  EXPECT_EQ(rows.keys, layers * (13 + 7));
  EXPECT_EQ(rows.scores, layers * (11 + 12 + 13 + 6 + 7));
  EXPECT_EQ(rows.decode_scores, layers * (11 + 12 + 13));
  // Of a draft model the second sequence goes on as well.
  EXPECT_EQ(steps.RowsOf(plan, /*going_on=*/2).decodes, 2);
  EXPECT_EQ(steps.RowsOf(plan, /*going_on=*/2).prompt_rows, 0);
  // A step of so many rows, whoever they are of.
  const ServingWork work = steps.WorkOf(rows);
  EXPECT_EQ(work.all_tokens, 5);
  EXPECT_EQ(work.sequences, 4);
}

}  // namespace
}  // namespace trimtab
