// Whole models train over the CUDA kernels, run on the host, as they do on the cpu: in every
// precision, and with the step captured and replayed from its second time on.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "engine/comm/parallel_context.h"
#include "engine/ops/cuda/emulated_ops.h"
#include "tests/engine/train/run_losses.h"

namespace trimtab {
namespace {

constexpr int64_t kSteps = 3;

/// The kernels add in another order than the cpu's. That changes roundings of the storage type, and
/// every step multiplies the difference by about ten; the differences seen after three are about a
/// third of what is allowed here. A wrong kernel shows in the first.
struct PrecisionCase {
  const char* layout;
  double loss_tolerance;  // relative, of each step
  double norm_tolerance;
};
constexpr PrecisionCase kPrecisions[] = {
    {"precision=fp32", 3e-7, 2e-6},
    {"precision=bf16", 6e-5, 6e-3},
    {"precision=bf16,master=remainder,moments=bf16,grads=bf16", 6e-5, 6e-3},
    {"precision=fp16", 1.5e-5, 2e-4},
    {"precision=fp16,moments=fp16", 1.5e-5, 2e-4},
    {"precision=fp8", 1.2e-4, 1.2e-2},
    {"precision=fp8,master=remainder,moments=bf16", 1.2e-4, 1.2e-2},
};

RunConfig RunOf(bool llama, const std::string& layout) {
  RunConfig run = SmallRun(llama);
  if (llama) {
    run.model.ffn_hidden_size = 64;  // fp8 takes multiples of 16
    run.model.num_kv_heads = 2;
  }
  // Two micro batches: gradients are added up.
  run.layout = ParseLayout("mbs=4," + layout, 0);
  return run;
}

/// One rank on `device`.
TrainedLosses TrainOn(Device& device, const RunConfig& run) {
  const auto source = MakeSyntheticSource(run.model.vocab_size, /*seed=*/7);
  TrainedLosses result;
  RunInprocRanks(run.layout, [&](ParallelContext& context) {
    Trainer trainer(run, context, device);
    for (int64_t step = 0; step < kSteps; ++step) {
      const StepResult step_result = trainer.Step(*source, step);
      result.losses.push_back(step_result.loss);
      result.grad_norms.push_back(step_result.grad_norm);
    }
    result.peak_bytes.push_back(device.memory().peak_total());
  });
  return result;
}

using Parameter = std::tuple<bool, PrecisionCase>;

class EmulatedDeviceTest : public testing::TestWithParam<Parameter> {};

double WorstDifference(const std::vector<double>& actual, const std::vector<double>& expected) {
  double worst = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    const double difference = std::abs(actual[i] - expected[i]) / std::abs(expected[i]);
    // NaN is the worst of all.
    worst = difference <= worst ? worst : difference;
  }
  return worst;
}

TEST_P(EmulatedDeviceTest, TrainsAsTheCpuDoesInTheMemoryOfTheDryRun) {
  const auto& [llama, precision] = GetParam();
  const RunConfig run = RunOf(llama, precision.layout);
  const auto cpu = MakeCpuDevice(1);
  const auto meta = MakeMetaDevice(1, DeviceKind::kCuda);
  const auto emulated = MakeEmulatedDevice();
  const TrainedLosses expected = TrainOn(*cpu, run);
  const TrainedLosses actual = TrainOn(*emulated, run);
  ASSERT_EQ(actual.losses.size(), static_cast<size_t>(kSteps));
  const double loss = WorstDifference(actual.losses, expected.losses);
  const double norm = WorstDifference(actual.grad_norms, expected.grad_norms);
  RecordProperty("worst_loss_difference", std::to_string(loss));
  RecordProperty("worst_norm_difference", std::to_string(norm));
  // Written so that NaN fails.
  EXPECT_TRUE(loss <= precision.loss_tolerance) << loss;
  EXPECT_TRUE(norm <= precision.norm_tolerance) << norm;
  EXPECT_EQ(actual.peak_bytes, TrainOn(*meta, run).peak_bytes);
}

std::string CaseName(const testing::TestParamInfo<Parameter>& info) {
  const auto& [llama, precision] = info.param;
  std::string name = fmt::format("{}_{}", llama ? "llama" : "gpt2", precision.layout);
  std::replace_if(
      name.begin(), name.end(), [](unsigned char c) { return std::isalnum(c) == 0; }, '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(Precisions, EmulatedDeviceTest,
                         testing::Combine(testing::Bool(), testing::ValuesIn(kPrecisions)),
                         CaseName);

TEST(EmulatedDeterminism, TwoRunsGiveTheSameBits) {
  const RunConfig run = RunOf(/*llama=*/true, "precision=bf16");
  const auto first = MakeEmulatedDevice({.deterministic = true});
  const auto second = MakeEmulatedDevice({.deterministic = true});
  const TrainedLosses expected = TrainOn(*first, run);
  const TrainedLosses actual = TrainOn(*second, run);
  EXPECT_EQ(actual.losses, expected.losses);
  EXPECT_EQ(actual.grad_norms, expected.grad_norms);
}

}  // namespace
}  // namespace trimtab
