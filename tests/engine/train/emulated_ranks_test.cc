// Several ranks on CUDA devices in one process, as they share one GPU: the messages between them
// are the CUDA kernels, and a layout gives the losses it gives on the cpu.
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <memory>
#include <ostream>

#include "engine/comm/cuda/emulated_comm.h"
#include "engine/comm/parallel_context.h"
#include "engine/ops/cuda/emulated_ops.h"
#include "tests/engine/train/run_losses.h"

namespace trimtab {
namespace {

constexpr int64_t kSteps = 2;

struct LayoutCase {
  bool llama;
  const char* layout;
  // Relative. The ops add in another order than the cpu's; see emulated_device_test.cc, whose
  // tolerances these are.
  double loss_tolerance;
  double norm_tolerance;
  bool experts = false;
};
constexpr LayoutCase kLayouts[] = {
    {false, "tp=2", 3e-7, 2e-6},
    {true, "tp=2,sp=1", 3e-7, 2e-6},
    {true, "dp=2,zero=1", 3e-7, 2e-6},
    {true, "dp=2,zero=2", 3e-7, 2e-6},
    {false, "tp=2,sp=1,dp=2,zero=3", 3e-7, 2e-6},
    {true, "tp=2,sp=1,tp_overlap_chunks=3", 3e-7, 2e-6},
    {false, "tp=2,dp=2,zero=1,tp_overlap_chunks=2,overlap_param_gather=1", 3e-7, 2e-6},
    {false, "dp=4,zero=2,shard=2", 3e-7, 2e-6},
    {false, "tp=2,dp=2,recompute=full", 3e-7, 2e-6},
    {true, "cp=2", 3e-7, 2e-6},
    {false, "cp=3,cp_comm_type=all_gather", 3e-7, 2e-6},
    {true, "dp=1", 3e-7, 2e-6, true},
    {true, "dp=2,ep=2", 3e-7, 2e-6, true},
    {false, "tp=2,sp=1,dp=2,ep=2,etp=2,zero=1", 3e-7, 2e-6, true},
    {true, "dp=2,ep=2,dispatch=allgather", 3e-7, 2e-6, true},
    {false, "tp=2,dp=2,precision=bf16,master=remainder,moments=bf16,grads=bf16", 6e-5, 6e-3},
};

void PrintTo(const LayoutCase& layout, std::ostream* out) { *out << layout.layout; }

TrainedLosses TrainOn(bool emulated, const RunConfig& run) {
  const auto source = MakeSyntheticSource(run.model.vocab_size, /*seed=*/7);
  TrainedLosses result;
  result.peak_bytes.resize(static_cast<size_t>(run.layout.world_size()));
  RunInprocRanks(run.layout, [&](ParallelContext& context) {
    const std::unique_ptr<Device> device = emulated ? MakeEmulatedDevice() : MakeCpuDevice(1);
    if (emulated) device->set_cuda_comm(&EmulatedCudaComm());
    Trainer trainer(run, context, *device);
    for (int64_t step = 0; step < kSteps; ++step) {
      const StepResult step_result = trainer.Step(*source, step);
      if (context.rank != 0) continue;
      result.losses.push_back(step_result.loss);
      result.grad_norms.push_back(step_result.grad_norm);
    }
    result.peak_bytes[static_cast<size_t>(context.rank)] = device->memory().peak_total();
  });
  return result;
}

class EmulatedRanksTest : public testing::TestWithParam<LayoutCase> {};

TEST_P(EmulatedRanksTest, TrainAsCpuRanksDo) {
  const LayoutCase& layout = GetParam();
  RunConfig run = layout.experts ? SmallExpertRun(layout.llama) : SmallRun(layout.llama);
  // The first step of AdamW divides each gradient by its own size, so without this a rounding in
  // one that is nearly zero, as many of an expert's are, moves its weight by a whole step.
  if (layout.experts) run.optimizer.epsilon = 1e-4;
  run.layout = ParseLayout(fmt::format("mbs=2,{}", layout.layout), 0);
  const TrainedLosses expected = TrainOn(/*emulated=*/false, run);
  const TrainedLosses actual = TrainOn(/*emulated=*/true, run);
  ASSERT_EQ(actual.losses.size(), static_cast<size_t>(kSteps));
  for (size_t step = 0; step < actual.losses.size(); ++step) {
    EXPECT_NEAR(actual.losses[step], expected.losses[step],
                layout.loss_tolerance * std::abs(expected.losses[step]))
        << step;
    EXPECT_NEAR(actual.grad_norms[step], expected.grad_norms[step],
                layout.norm_tolerance * std::abs(expected.grad_norms[step]))
        << step;
  }
}

std::string CaseName(const testing::TestParamInfo<LayoutCase>& info) {
  std::string name = info.param.layout;
  std::replace_if(
      name.begin(), name.end(), [](unsigned char c) { return std::isalnum(c) == 0; }, '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(Layouts, EmulatedRanksTest, testing::ValuesIn(kLayouts), CaseName);

}  // namespace
}  // namespace trimtab
