#include "profiler/measure.h"

#include <gtest/gtest.h>

#include <sstream>

#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "cost_model/estimate.h"
#include "engine/base/error.h"
#include "profiler/worker.h"

namespace trimtab {
namespace {

RunConfig TinyRun() {
  RunConfig run;
  run.model.name = "tiny";
  run.model.vocab_size = 128;
  run.model.hidden_size = 32;
  run.model.num_layers = 2;
  run.model.num_heads = 2;
  run.model.num_kv_heads = 2;
  run.model.ffn_hidden_size = 64;
  run.model.max_sequence_length = 16;
  run.global_batch = 4;
  run.sequence_length = 16;
  run.threads_per_rank = 1;
  return run;
}

MeasureOptions FewSteps() {
  MeasureOptions options;
  options.warmup = 1;
  options.steps = 3;
  options.max_steps = 5;
  return options;
}

TEST(Measure, FiguresAgreeWithEachOther) {
  RunConfig run = TinyRun();
  run.layout.dp = 2;
  MeasureOptions options = FewSteps();
  options.peak_flops_per_rank = 1e12;
  const Measurement m = Measure(run, options);
  EXPECT_GE(m.steps_measured, 3);
  EXPECT_LE(m.steps_measured, 5);
  EXPECT_GT(m.step_time_s, 0);
  EXPECT_DOUBLE_EQ(m.tokens_per_s, 4 * 16 / m.step_time_s);
  EXPECT_DOUBLE_EQ(m.tokens_per_s_per_gpu, m.tokens_per_s / 2);
  EXPECT_DOUBLE_EQ(m.model_tflops_per_gpu, ModelFlops(run) / m.step_time_s / 2 / 1e12);
  EXPECT_DOUBLE_EQ(m.mfu, m.model_tflops_per_gpu);
  int64_t bytes = 0;
  for (const auto& [tag, tag_bytes] : m.memory_bytes) bytes += tag_bytes;
  EXPECT_EQ(bytes, m.peak_mem_bytes);
  EXPECT_GT(m.memory_bytes.at("weights"), 0);
}

TEST(Measure, SaysWhatItRanInAndNoPowerOnACpu) {
  RunConfig run = TinyRun();
  run.layout.numerics.precision = Precision::kBf16;
  run.layout.numerics.master = MasterWeights::kRemainder;
  run.layout.numerics.moments = DType::kBf16;
  const Measurement m = Measure(run, FewSteps());
  EXPECT_EQ(m.precision, "bf16");
  EXPECT_EQ(m.optimizer_state, "reduced");
  EXPECT_FALSE(m.power.has_value());
  EXPECT_TRUE(ToJson(m).at("power").is_null());
}

TEST(Measure, PowerOfSeveralGpusAddsUp) {
  EXPECT_FALSE(TotalPower({}, 100).has_value());
  const std::vector<GpuPower> gpus = {
      {.energy_j = 300, .watts = 600, .clock_mhz = 1700, .temperature_c = 60},
      {.energy_j = 200, .watts = 400, .clock_mhz = 1900, .temperature_c = 70}};
  Measurement m;
  m.power = TotalPower(gpus, 1000);
  ASSERT_TRUE(m.power.has_value());
  EXPECT_DOUBLE_EQ(m.power->watts, 1000);
  EXPECT_DOUBLE_EQ(m.power->joules_per_token, 0.5);
  EXPECT_DOUBLE_EQ(m.power->clock_mhz, 1800);
  EXPECT_DOUBLE_EQ(m.power->temperature_c, 70);
  const Measurement read = MeasurementFromJson(ToJson(m), "test");
  ASSERT_TRUE(read.power.has_value());
  EXPECT_EQ(ToJson(read), ToJson(m));
}

// Results files and studies of older versions have none of the newer fields.
TEST(Measure, AnOlderResultIsRead) {
  nlohmann::json json = ToJson(Measurement{});
  for (const char* key : {"precision", "optimizer_state", "power"}) json.erase(key);
  const Measurement read = MeasurementFromJson(json, "test");
  EXPECT_EQ(read.precision, "");
  EXPECT_FALSE(read.power.has_value());
}

TEST(Measure, TheBreakdownCoversOneStep) {
  RunConfig run = TinyRun();
  run.layout.tp = 2;
  const Measurement m = Measure(run, FewSteps());
  EXPECT_GT(m.breakdown_s.at("gemm"), 0);
  EXPECT_GT(m.breakdown_s.at("adamw"), 0);
  EXPECT_TRUE(m.breakdown_s.contains("all_reduce:tp"));
  EXPECT_TRUE(m.breakdown_s.contains("other"));
  MeasureOptions options = FewSteps();
  options.breakdown_visit = 0;
  EXPECT_TRUE(Measure(run, options).breakdown_s.empty());
}

TEST(Measure, LossesAreThoseOfTraining) {
  const RunConfig one = TinyRun();
  RunConfig two = TinyRun();
  two.layout.dp = 2;
  MeasureOptions options = FewSteps();
  options.breakdown_visit = 0;
  options.max_steps = 3;
  const Measurement a = Measure(one, options);
  const Measurement b = Measure(two, options);
  ASSERT_EQ(a.losses.size(), 4u) << "one of warm-up and three counted";
  ASSERT_EQ(b.losses.size(), 4u);
  EXPECT_NEAR(a.losses[0], std::log(128.0), 0.1);
  for (size_t i = 0; i < 4; ++i) EXPECT_NEAR(a.losses[i], b.losses[i], 1e-5 * a.losses[i]) << i;
}

TEST(Measure, TheMemoryLimitIsKept) {
  RunConfig run = TinyRun();
  run.layout.dp = 2;
  const int64_t needed = Measure(run, FewSteps()).peak_mem_bytes;
  run.memory_per_rank_bytes = needed;
  EXPECT_EQ(Measure(run, FewSteps()).peak_mem_bytes, needed);
  run.memory_per_rank_bytes = needed - 1;
  EXPECT_THROW(Measure(run, FewSteps()), OutOfMemoryError);
}

TEST(Measure, TimeEndsTheMeasurement) {
  MeasureOptions options = FewSteps();
  options.steps = options.max_steps = 1000000;
  options.max_seconds = 0.05;
  EXPECT_LT(Measure(TinyRun(), options).steps_measured, 1000000);
}

TEST(Measure, RefusesWhatCannotRun) {
  RunConfig run = TinyRun();
  run.device = DeviceKind::kCuda;
  EXPECT_THROW(Measure(run, FewSteps()), EnvironmentError);
  run = TinyRun();
  run.layout.tp = 3;
  EXPECT_THROW(Measure(run, FewSteps()), InfeasibleError);
  run = TinyRun();
  run.data = "/nonexistent/text";
  EXPECT_THROW(Measure(run, FewSteps()), InputError);
}

TEST(Worker, WritesWhatHappened) {
  const std::string path = std::string(std::getenv("TEST_TMPDIR")) + "/worker_results";
  const auto work = [&](const RunConfig& run, const std::string& commands) {
    std::istringstream stream(commands);
    return WorkerExitCode(RunWorker(path, stream, TrainingVisits(run, FewSteps())));
  };
  RunConfig run = TinyRun();
  EXPECT_EQ(work(run, ""), 0) << "never told to measure";
  EXPECT_TRUE(ReadResults(path).empty());
  EXPECT_EQ(work(run, "visit s-1\nvisit s-2\n"), 0);
  run.memory_per_rank_bytes = 1000;
  EXPECT_EQ(work(run, "visit s-3\nvisit s-4\n"), 4);
  run.memory_per_rank_bytes = 0;
  run.data = "/nonexistent/text";
  EXPECT_EQ(work(run, "visit s-5\n"), 1);
  const std::vector<TrialResult> results = ReadResults(path);
  ASSERT_EQ(results.size(), 4u);
  for (size_t i = 0; i < results.size(); ++i) {
    EXPECT_EQ(results[i].attempt, i < 3 ? fmt::format("s-{}", i + 1) : "s-5");
  }
  EXPECT_EQ(results[0].state, TrialState::kDone);
  EXPECT_EQ(results[1].state, TrialState::kDone);
  EXPECT_EQ(results[1].measurement->peak_mem_bytes, results[0].measurement->peak_mem_bytes);
  // How many steps a visit takes depends on how steady they are.
  EXPECT_GT(results[1].measurement->losses.size(), results[0].measurement->losses.size())
      << "the run went on, and did not begin anew";
  EXPECT_EQ(results[2].state, TrialState::kOutOfMemory);
  EXPECT_EQ(results[3].state, TrialState::kInterrupted) << "before its ranks had met";
  EXPECT_NE(results[3].message.find("/nonexistent/text"), std::string::npos);
}

TEST(Worker, CallsFiguresThatAreNoNumbersByTheirName) {
  const std::string path = std::string(std::getenv("TEST_TMPDIR")) + "/worker_numeric";
  RunConfig run = TinyRun();
  run.optimizer.learning_rate = 1e30;  // far beyond what fp32 can hold after some steps
  run.optimizer.min_learning_rate = 1e30;
  run.optimizer.warmup_steps = 0;
  MeasureOptions options = FewSteps();
  options.steps = options.max_steps = 10;
  std::istringstream commands("visit n-1\n");
  EXPECT_EQ(WorkerExitCode(RunWorker(path, commands, TrainingVisits(run, options))), 1);
  const std::vector<TrialResult> results = ReadResults(path);
  ASSERT_EQ(results.size(), 1u);
  EXPECT_EQ(results[0].state, TrialState::kNumeric);
  EXPECT_NE(results[0].message.find("not finite"), std::string::npos) << results[0].message;

  Measurement measurement;
  measurement.step_time_s = 1;
  EXPECT_EQ(WhyNotNumeric(measurement), "");
  measurement.blocks = {{.step_s = -0.5, .probe_s = 1}};
  EXPECT_EQ(WhyNotNumeric(measurement), "a step took -0.5 s by the clock");
  measurement.step_time_s = 0;
  EXPECT_EQ(WhyNotNumeric(measurement), "a step took 0 s by the clock");
}

TEST(Worker, RefusesACommandItDoesNotKnow) {
  const std::string path = std::string(std::getenv("TEST_TMPDIR")) + "/worker_commands";
  std::istringstream stream("dance\n");
  EXPECT_THROW(RunWorker(path, stream, TrainingVisits(TinyRun(), FewSteps())), InputError);
}

TEST(Measure, BlocksHoldEveryCountedStepWithTheMachinesSpeed) {
  const Measurement measurement = Measure(TinyRun(), FewSteps());
  ASSERT_FALSE(measurement.blocks.empty());
  for (const StepBlock& block : measurement.blocks) {
    EXPECT_GT(block.step_s, 0);
    EXPECT_GT(block.probe_s, 0);
  }
  const Measurement read = MeasurementFromJson(ToJson(measurement), "text");
  EXPECT_EQ(read.blocks, measurement.blocks);
}

}  // namespace
}  // namespace trimtab
