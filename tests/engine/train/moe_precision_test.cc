// Models with experts train over the CUDA kernels, run on the host, as they do on the cpu; and in
// 16 bits under a layout as on one rank.
#include <gtest/gtest.h>

#include <cmath>

#include "engine/comm/parallel_context.h"
#include "engine/config/rules/rules.h"
#include "engine/ops/cuda/emulated_ops.h"
#include "tests/engine/train/moe_runs.h"
#include "tests/engine/train/run_losses.h"

namespace trimtab {
namespace {

constexpr int64_t kSteps = 3;
/// Of losses in fp8: what other cuts of the sums change is at most a third of it, on one rank too.
constexpr double kFp8Tolerance = 2e-3;

struct Trained {
  std::vector<double> losses;
  std::vector<double> imbalances;
  int64_t peak_bytes = 0;
};

/// One rank.
Trained TrainOn(Device& device, const RunConfig& run) {
  const auto source = MakeSyntheticSource(run.model.vocab_size, /*seed=*/7);
  const ParallelContext context = MakeMetaContext(run.layout, 0);
  Trainer trainer(run, context, device);
  Trained result;
  for (int64_t step = 0; step < kSteps; ++step) {
    const StepResult of_step = trainer.Step(*source, step);
    result.losses.push_back(of_step.loss);
    result.imbalances.push_back(of_step.routing.imbalance);
  }
  result.peak_bytes = device.memory().peak_total();
  return result;
}

class MoeOnEmulatedDeviceTest : public testing::TestWithParam<MoeRun> {};

TEST_P(MoeOnEmulatedDeviceTest, TrainsAsTheCpuDoesInTheMemoryOfTheDryRun) {
  RunConfig run = GetParam().run;
  run.layout = ParseLayout("mbs=4", 0);
  const std::unique_ptr<Device> cpu = MakeCpuDevice(1);
  const std::unique_ptr<Device> emulated = MakeEmulatedDevice();
  const Trained expected = TrainOn(*cpu, run);
  const Trained actual = TrainOn(*emulated, run);
  for (size_t step = 0; step < expected.losses.size(); ++step) {
    EXPECT_NEAR(actual.losses[step], expected.losses[step], 1e-6 * expected.losses[step]);
  }
  EXPECT_EQ(actual.imbalances, expected.imbalances);
  if (run.model.moe.capacity_factor > 0 && !run.model.moe.pad_to_capacity) return;
  const std::unique_ptr<Device> meta = MakeMetaDevice(1, DeviceKind::kCuda);
  EXPECT_EQ(actual.peak_bytes, TrainOn(*meta, run).peak_bytes);
}

INSTANTIATE_TEST_SUITE_P(Runs, MoeOnEmulatedDeviceTest, testing::ValuesIn(SmallMoeRuns()),
                         [](const auto& param) { return param.param.name; });

// What kernels and the cpu's loops round otherwise costs half a unit of e4m3 here and there.
TEST(MoePrecisions, Fp8TrainsAlikeOverTheCudaKernels) {
  for (const char* name : {"deepseek", "balanced_biases"}) {
    RunConfig run = SmallMoeRunInFp8(name);
    run.layout = ParseLayout("mbs=4,precision=fp8", 0);
    SCOPED_TRACE(name);
    const std::unique_ptr<Device> cpu = MakeCpuDevice(1);
    const std::unique_ptr<Device> emulated = MakeEmulatedDevice();
    const Trained expected = TrainOn(*cpu, run);
    const Trained actual = TrainOn(*emulated, run);
    for (size_t step = 0; step < expected.losses.size(); ++step) {
      EXPECT_NEAR(actual.losses[step], expected.losses[step],
                  kFp8Tolerance * expected.losses[step]);
    }
    const std::unique_ptr<Device> meta = MakeMetaDevice(1, DeviceKind::kCuda);
    EXPECT_EQ(actual.peak_bytes, TrainOn(*meta, run).peak_bytes);
  }
}

TEST(MoePrecisions, LayoutsTrainAlikeInFp8) {
  for (const char* name : {"balanced", "balanced_biases", "deepseek"}) {
    for (const char* scaling : {"delayed", "current"}) {
      RunConfig run = SmallMoeRunInFp8(name);
      run.fp8.scaling = scaling;
      const auto source = MakeSyntheticSource(run.model.vocab_size, /*seed=*/7);
      run.layout = ParseLayout("mbs=2,precision=fp8", 0);
      const TrainedLosses expected = TrainOnRanks(run, *source, kSteps);
      for (const char* layout :
           {"mbs=2,tp=2,sp=1", "mbs=2,dp=2,zero=3", "mbs=4,cp=2,zero=1", "mbs=2,dp=2,ep=2",
            "mbs=2,dp=2,ep=2,dispatch=allgather,zero=1", "mbs=2,dp=2,etp=2,recompute=selective:mlp",
            "mbs=1,tp=2,sp=1,dp=2,ep=2,etp=2,zero=3,recompute=selective:mlp_act+layernorm",
            "mbs=2,pp=2,dp=2,ep=2,zero=2,schedule=zero-bubble"}) {
        run.layout = ParseLayout(std::string(layout) + ",precision=fp8", 0);
        SCOPED_TRACE(fmt::format("{} {} {}", name, scaling, ToString(run.layout)));
        ASSERT_EQ(FirstBrokenRule(run), nullptr);
        const TrainedLosses actual = TrainOnRanks(run, *source, kSteps);
        ExpectSameTraining(actual, expected, kFp8Tolerance);
        EXPECT_EQ(actual.peak_bytes, DryRunPeaks(run, *source));
      }
    }
  }
}

/// What layouts differ by is what a rounding costs, where no choice hangs on one.
TEST(MoePrecisions, LayoutsTrainAlikeIn16Bits) {
  for (const char* name : {"balanced", "balanced_biases"}) {
    for (const auto& [precision, tolerance] :
         {std::pair("precision=bf16", 6e-3),
          std::pair("precision=bf16,master=remainder,moments=bf16,grads=bf16", 6e-3),
          std::pair("precision=fp16", 1.5e-3)}) {
      RunConfig run = SmallMoeRun(name);
      const auto source = MakeSyntheticSource(run.model.vocab_size, /*seed=*/7);
      run.layout = ParseLayout(std::string("mbs=2,") + precision, 0);
      const TrainedLosses expected = TrainOnRanks(run, *source, kSteps);
      for (const char* layout : {"mbs=2,tp=2,sp=1", "mbs=2,dp=2,zero=3", "mbs=4,cp=2,zero=1"}) {
        run.layout = ParseLayout(std::string(layout) + "," + precision, 0);
        SCOPED_TRACE(fmt::format("{} {}", name, ToString(run.layout)));
        const TrainedLosses actual = TrainOnRanks(run, *source, kSteps);
        for (size_t step = 0; step < expected.losses.size(); ++step) {
          EXPECT_NEAR(actual.losses[step], expected.losses[step],
                      tolerance * expected.losses[step]);
        }
        EXPECT_EQ(actual.peak_bytes, DryRunPeaks(run, *source));
      }
    }
  }
}

}  // namespace
}  // namespace trimtab
