#include "tests/engine/train/run_losses.h"

#include <gtest/gtest.h>

#include "engine/device/cuda/loader.h"
#include "engine/runtime/ranks.h"

namespace trimtab {

TrainedLosses TrainOnRanks(const RunConfig& run, const TokenSource& source, int64_t steps) {
  TrainedLosses result;
  std::vector<std::vector<double>> losses(static_cast<size_t>(run.layout.world_size()));
  std::vector<std::vector<double>> grad_norms(losses.size());
  result.peak_bytes.resize(losses.size());
  RunRanks(run, [&](Rank& this_rank) {
    const auto rank = static_cast<size_t>(this_rank.index());
    Trainer trainer(run, this_rank.parallel(), this_rank.device());
    for (int64_t step = 0; step < steps; ++step) {
      const StepResult step_result = trainer.Step(source, step);
      losses[rank].push_back(step_result.loss);
      grad_norms[rank].push_back(step_result.grad_norm);
      if (rank == 0) result.routing.push_back(step_result.routing);
    }
    result.peak_bytes[rank] = this_rank.device().memory().peak_total();
  });
  result.losses = losses[0];
  result.grad_norms = grad_norms[0];
  for (const auto& other : losses) EXPECT_EQ(other, losses[0]) << "ranks report different losses";
  for (const auto& other : grad_norms) EXPECT_EQ(other, grad_norms[0]) << "different norms";
  return result;
}

std::vector<int64_t> DryRunPeaks(const RunConfig& run, const TokenSource& source) {
  std::vector<int64_t> peaks;
  for (int rank = 0; rank < run.layout.world_size(); ++rank) {
    const auto device = MakeMetaDevice(1);
    const ParallelContext context =
        MakeMetaContext(run.layout, rank, run.model.kv_copies(run.layout.tp));
    Trainer dry(run, context, *device);
    dry.Step(source, 0);
    peaks.push_back(device->memory().peak_total());
  }
  return peaks;
}

std::string WhyNotOn(DeviceKind device) {
  if (device == DeviceKind::kCpu || FindCudaDevices().device_count > 0) return "";
  return "no CUDA device: " + FindCudaDevices().reason;
}

void ExpectSameTraining(const TrainedLosses& actual, const TrainedLosses& expected,
                        double tolerance) {
  ASSERT_EQ(actual.losses.size(), expected.losses.size());
  for (size_t step = 0; step < expected.losses.size(); ++step) {
    EXPECT_NEAR(actual.losses[step], expected.losses[step], tolerance * expected.losses[step])
        << "step " << step;
  }
  EXPECT_NEAR(actual.grad_norms[0], expected.grad_norms[0],
              10 * tolerance * expected.grad_norms[0]);
}

RunConfig SmallRun(bool llama) {
  RunConfig run;
  run.model = {.name = llama ? "small-llama" : "small-gpt2",
               .vocab_size = 61,
               .hidden_size = 32,
               .num_layers = 3,
               .num_heads = 4,
               .num_kv_heads = 4,
               .ffn_hidden_size = llama ? 48 : 128,
               .max_sequence_length = 16,
               .make_vocab_size_divisible_by = 4};
  if (llama) {
    run.model.norm = NormKind::kRmsNorm;
    run.model.activation = ActivationKind::kSwiGlu;
    run.model.position = PositionKind::kRope;
    run.model.bias = false;
    run.model.tied_embeddings = false;
  }
  run.optimizer.learning_rate = 1e-2;
  run.optimizer.warmup_steps = 2;
  run.sequence_length = 12;
  run.global_batch = 8;
  run.steps = 10;
  run.threads_per_rank = 1;
  return run;
}

RunConfig SmallExpertRun(bool llama) {
  RunConfig run = SmallRun(llama);
  run.model.moe = {.num_experts = 4, .router_topk = 2, .ffn_hidden_size = 48};
  run.model.init_std = 0.2;
  return run;
}

}  // namespace trimtab
