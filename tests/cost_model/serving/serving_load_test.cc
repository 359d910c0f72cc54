#include "cost_model/serving/serving_load.h"

#include <gtest/gtest.h>

#include "cost_model/serving/serving_price.h"
#include "engine/config/model/model_config.h"
#include "engine/families/load_config.h"

namespace trimtab {
namespace {

ServingEngine EngineOf(PromptPolicy policy) {
  ServingEngine engine;
  engine.policy = policy;
  engine.tokens_per_step = 1000;
  engine.max_sequences = 256;
  engine.memory_share.value = 0.9;
  engine.memory_bytes.value = 10;
  engine.windowed_room.value = 1;
  return engine;
}

constexpr ServingFootprint kFootprint = {.weight_bytes = 100, .kv_bytes_per_token = 1};

ServingPlan Plan(const ServingLoad& load, const ServingEngine& engine, double memory = 1e7) {
  return PlanServing(load, engine, {}, kFootprint, memory);
}

TEST(RoomTokens, IsWhatWeightsAndTheEngineLeave) {
  ServingEngine engine = EngineOf(PromptPolicy::kWhole);
  EXPECT_DOUBLE_EQ(RoomTokens(engine, {}, kFootprint, 1000), 0.9 * 1000 - 110);
  engine.share_of_free = true;
  EXPECT_DOUBLE_EQ(RoomTokens(engine, {}, kFootprint, 1000), 0.9 * 890);
  EXPECT_DOUBLE_EQ(RoomTokens(engine, {.dp = 2}, kFootprint, 1000), 2 * 0.9 * 890);
  EXPECT_EQ(RoomTokens(engine, {}, kFootprint, 100), 0);
}

TEST(PlanServing, MixesOnePromptInSoManySteps) {
  // 11 sequences, answers of 101 tokens: between two tokens a tenth of a prompt of another one.
  const ServingPlan plan =
      Plan({.input = 200, .output = 101, .sequences = 11}, EngineOf(PromptPolicy::kChunked));
  ASSERT_EQ(plan.steps.size(), 2u);
  EXPECT_DOUBLE_EQ(plan.steps[0].count, 0.9);
  EXPECT_EQ(plan.steps[0].step.sequences, 11);
  EXPECT_EQ(plan.steps[0].step.context, 250);
  EXPECT_DOUBLE_EQ(plan.steps[1].count, 0.1);
  EXPECT_EQ(plan.steps[1].step.prompts, 1);
  EXPECT_EQ(plan.steps[1].step.prompt_tokens, 200);
  EXPECT_FALSE(plan.waits_for_room);
}

TEST(PlanServing, CutsPromptsToWhatAStepHasRoomFor) {
  const ServingPlan plan =
      Plan({.input = 3000, .output = 1001, .sequences = 11}, EngineOf(PromptPolicy::kChunked));
  ASSERT_EQ(plan.steps.size(), 2u);  // 4 pieces of 750 tokens beside 11 sequences
  EXPECT_DOUBLE_EQ(plan.steps[1].count, 0.04);
  EXPECT_EQ(plan.steps[1].step.prompt_tokens, 750);
  EXPECT_EQ(plan.steps[1].step.prompt_position, 1125);
}

TEST(PlanServing, HoldsSequencesUpWherePromptsAreAlone) {
  const ServingPlan plan =
      Plan({.input = 200, .output = 101, .sequences = 11}, EngineOf(PromptPolicy::kAlone));
  ASSERT_EQ(plan.steps.size(), 2u);
  EXPECT_DOUBLE_EQ(plan.steps[0].count, 1);
  EXPECT_EQ(plan.steps[1].step.sequences, 0);
  EXPECT_DOUBLE_EQ(plan.steps[1].count, 0.1);
}

TEST(PlanServing, RunsAsManyAsTheCacheHasRoomFor) {
  ServingEngine engine = EngineOf(PromptPolicy::kWhole);
  const ServingLoad load = {.input = 100, .output = 100, .sequences = 20};
  // 0.9 M - 110 = 1500 tokens: 10 sequences of 150 on average, or 7.5 with all of their answers.
  const double memory = 1610 / 0.9;
  EXPECT_DOUBLE_EQ(Plan(load, engine, memory).running, 10);
  EXPECT_TRUE(Plan(load, engine, memory).waits_for_room);
  engine.reserves_output = true;
  EXPECT_DOUBLE_EQ(Plan(load, engine, memory).running, 7.5);
  EXPECT_TRUE(Plan(load, engine, memory).fits);
  EXPECT_FALSE(Plan(load, engine, 300 / 0.9).fits);
}

TEST(PlanServing, TakesStaticBatchesTokenByToken) {
  const ServingPlan plan =
      Plan({.kind = ServingLoad::Kind::kStatic, .input = 64, .output = 17, .sequences = 4},
           EngineOf(PromptPolicy::kWhole));
  ASSERT_EQ(plan.steps.size(), 1u + 8u);
  EXPECT_EQ(plan.steps[0].step.prompts, 4);
  EXPECT_EQ(plan.steps[0].step.prompt_tokens, 64);
  EXPECT_DOUBLE_EQ(plan.steps[1].count, 2);
  EXPECT_EQ(plan.steps[1].step.context, 65);
  EXPECT_EQ(plan.steps[8].step.context, 79);
  EXPECT_EQ(plan.tokens, 4 * 17);
}

TEST(PlanServing, FinishesAllRequestsThatCameAtOnce) {
  const ServingPlan plan =
      Plan({.kind = ServingLoad::Kind::kSaturated, .input = 1, .output = 100, .requests = 300},
           EngineOf(PromptPolicy::kWhole));
  EXPECT_EQ(plan.running, 256);
  EXPECT_EQ(plan.tokens, 300 * 100);
  double with_all = 0;
  double with_rest = 0;
  for (const CountedStep& each : plan.steps) {
    (each.step.sequences == 44 ? with_rest : with_all) += each.count;
  }
  EXPECT_NEAR(with_all, 100, 1e-9);
  EXPECT_NEAR(with_rest, 100, 1e-9);
}

// More at once: more tokens a second, and longer between two of them.
TEST(PlanServing, ThroughputAndWaitsGrowWithConcurrency) {
  ServingRecorder recorder(LoadModelConfig("llama3-8b"), {});
  for (const ServingEngine& engine : BuiltinServingEngines()) {
    const HardwareProfile& profile = *FindBuiltinProfile("h100");
    const ServingPricer pricer(
        ServingRatesOf(profile, ServingGpuOf("hopper"), engine, ServingPrecision::k16Bit, 2));
    double last_time = 0;
    double last_rate = 0;
    for (const int64_t sequences : {1, 2, 4, 8, 16, 32, 64}) {
      const ServingPlan plan =
          PlanServing({.input = 500, .output = 500, .sequences = sequences}, engine, {},
                      recorder.footprint(), VisibleMemory(profile));
      ASSERT_TRUE(plan.fits);
      double seconds = 0;
      for (const CountedStep& each : plan.steps) {
        seconds += each.count * pricer.Price(recorder.Record(each.step)).seconds();
      }
      EXPECT_GT(seconds, last_time) << engine.name << " " << sequences;
      EXPECT_GT(plan.tokens / seconds, last_rate) << engine.name << " " << sequences;
      last_time = seconds;
      last_rate = plan.tokens / seconds;
    }
  }
}

// NVIDIA ran Falcon 180B in int4 on one H200 with TensorRT-LLM 0.7, at up to 800 tokens/s
// (nvidia.github.io/TensorRT-LLM/blogs/Falcon180B-H200.html).
TEST(PlanServing, Falcon180bInInt4FitsOneH200) {
  const ServingLayout layout = {.weights = ServingPrecision::kInt4, .kv_bytes = 1};
  ServingRecorder recorder(LoadModelConfig("falcon-180b"), layout);
  const HardwareProfile& profile = *FindBuiltinProfile("h200");
  const ServingEngine& engine = *ServingEngineOf("tensorrt-llm", "0.7.0");
  const ServingPlan plan = PlanServing(
      {.kind = ServingLoad::Kind::kStatic, .input = 128, .output = 128, .sequences = 256}, engine,
      layout, recorder.footprint(), VisibleMemory(profile));
  EXPECT_TRUE(plan.fits);
  EXPECT_FALSE(plan.waits_for_room);
  const ServingPricer pricer(
      ServingRatesOf(profile, ServingGpuOf("hopper"), engine, layout.weights, 1));
  double seconds = 0;
  for (const CountedStep& each : plan.steps) {
    seconds += each.count * pricer.Price(recorder.Record(each.step)).seconds();
  }
  EXPECT_GT(plan.tokens / seconds, 0.75 * 662);
  EXPECT_LT(plan.tokens / seconds, 1.25 * 796);
}

}  // namespace
}  // namespace trimtab
