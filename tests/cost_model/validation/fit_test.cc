#include "cost_model/validation/fit.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <span>

#include "cost_model/validation/fitted_files.h"

namespace trimtab {
namespace {

/// A run of one source's own family, on so many GPUs.
PublishedRun RunOf(int64_t number) {
  PublishedRun run;
  run.id = "run " + std::to_string(number);
  run.family = "family " + std::to_string(number);
  run.source = "source " + std::to_string(number % 3);
  run.framework = "NeMo 24.07";
  run.year = 2024;
  run.model = {.name = "gpt",
               .layers = 4 + 2 * (number % 5),
               .hidden = 1024 * (1 + number % 4),
               .heads = 8 * (1 + number % 4),
               .kv_heads = 8 * (1 + number % 4),
               .head_dim = 128,
               .ffn = 4096 * (1 + number % 4),
               .ffn_kind = "gelu",
               .vocab = 50304,
               .sequence = 2048};
  run.hardware = {.gpu = "H100-SXM", .gpus = 8, .gpus_per_node = 8};
  run.layout = {.tp = 1 << number % 2, .dp = 8 >> number % 2, .zero_stage = 1};
  run.micro_batch = 1 + number % 3;
  run.global_batch = run.micro_batch * run.layout.dp * 4;
  run.recompute = number % 2 == 0 ? "none" : "full";
  run.precision = "bf16";
  run.measured.step_time_s = 1;
  return run;
}

/// Runs "measured" by our own prediction on machines whose products are slower than shipped.
std::vector<ValidationRow> RunsOnSlowerMachines(RunPredictor& predictor, double speed) {
  std::vector<PublishedRun> runs;
  for (int64_t i = 0; i < 24; ++i) runs.push_back(RunOf(i));
  std::vector<ValidationRow> rows = TakeRuns(runs).rows;
  for (ValidationRow& row : rows) {
    predictor.Predict(row);
    Cluster slower = row.of.cluster;
    for (EfficiencyPoint& point : slower.profile.gemm_efficiency.points) point.efficiency *= speed;
    row.tokens_per_s_per_gpu = predictor.PredictWith(row, slower).tokens_per_s_per_gpu();
  }
  return rows;
}

TEST(Fit, FindsTheConstantThatRunsWereMadeWith) {
  RunPredictor predictor;
  constexpr double kSpeed = 0.85;
  const std::vector<ValidationRow> rows = RunsOnSlowerMachines(predictor, kSpeed);
  ASSERT_EQ(rows.size(), 24u);
  const FitResult fit = FitPublishedRuns(rows, predictor, Outcome::kStepTime, /*worths=*/true);
  // A machine's products and a stack's cannot be told apart by one stack: their product can.
  double speed = 1;
  for (size_t i = 0; i < fit.constants.size(); ++i) {
    const std::string name = fit.constants[i].Name();
    if (name == "hopper gemm_efficiency" || name == "nemo compute" ||
        name == "stacks compute of 1") {
      speed *= std::exp(fit.logs[i]);
    }
    EXPECT_GE(fit.logs[i], fit.constants[i].least);
    EXPECT_LE(fit.logs[i], fit.constants[i].most);
    EXPECT_GT(fit.sds[i], 0);
    EXPECT_LE(fit.sds[i], 1.001 * fit.constants[i].spread) << "data never widens a prior";
  }
  EXPECT_NEAR(speed, kSpeed, 0.05);
  const auto expect_below = [&](const std::vector<double>& errors, double most) {
    ASSERT_EQ(errors.size(), rows.size());
    for (const double error : errors) EXPECT_LT(std::abs(error), most);
  };
  expect_below(fit.errors, 0.05);
  expect_below(fit.held_out.by_family, 0.05);
  // What was taken for the stack's is lost with the source, and a loss in fp32 for a part of it.
  expect_below(fit.held_out.by_source, 0.06);
  EXPECT_FALSE(fit.without.empty());
}

// What is held out leaves nothing behind: a stack that no other run is of is what was expected.
TEST(ConstantFitter, ForgetsWhatNoRowSays) {
  RunPredictor predictor;
  const std::vector<ValidationRow> rows = RunsOnSlowerMachines(predictor, 0.9);
  ConstantFitter fitter(rows, predictor, Outcome::kStepTime);
  const Logs fitted(fitter.constants().size(), 0.25);
  EXPECT_EQ(fitter.ForgetUnless({0, 1}, fitted, {}), fitted);
  const Logs none = fitter.ForgetUnless({}, fitted, {3});
  for (size_t i = 0; i < none.size(); ++i) {
    EXPECT_EQ(none[i], i == 3 ? 0.25 : fitter.constants()[i].prior) << i;
  }
}

// What is written differs from what was shipped by what was fitted, and can be read again.
TEST(FittedFiles, HoldTheConstants) {
  RunPredictor predictor;
  const std::vector<ValidationRow> rows = RunsOnSlowerMachines(predictor, 0.9);
  const FitResult fit = FitPublishedRuns(rows, predictor, Outcome::kStepTime, /*worths=*/false);
  double factor = 0;  // of products on an H100
  for (size_t i = 0; i < fit.constants.size(); ++i) {
    if (fit.constants[i].Name() == "hopper gemm_efficiency") factor = std::exp(fit.logs[i]);
  }
  ASSERT_LT(factor, 1);
  bool met = false;
  for (const FittedFile& file : FittedFiles(std::span(&fit, 1))) {
    const nlohmann::json json = nlohmann::json::parse(file.text);
    if (file.path.starts_with("stacks/")) {
      EXPECT_NO_THROW(SoftwareStackFromJson(json, file.path)) << file.path;
      continue;
    }
    const HardwareProfile written = HardwareProfileFromJson(json, file.path);
    const HardwareProfile shipped = BuiltinProfile(written.name);
    const double of = written.generation == "hopper" ? factor : 1;
    met |= of != 1;
    EXPECT_NEAR(written.gemm_efficiency.points[0].efficiency,
                of * shipped.gemm_efficiency.points[0].efficiency, 1e-4)
        << file.path;
  }
  EXPECT_TRUE(met);
}

}  // namespace
}  // namespace trimtab
