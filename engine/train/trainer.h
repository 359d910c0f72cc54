// Trainer: one rank's model, gradients and optimizer, and the training step.
//
// The same code runs on cpu and cuda, and on meta, where it is the dry run.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/config/run_config.h"
#include "engine/data/token_source.h"
#include "engine/model/gpt_model.h"
#include "engine/optim/optimizer.h"
#include "engine/parallel/gradient_reducer.h"

namespace trimtab {

struct StepResult {
  double loss = 0;       // mean cross-entropy per token of the global batch
  double grad_norm = 0;  // global, before clipping
  double learning_rate = 0;
};

class Trainer {
 public:
  /// Allocates weights, gradients and optimizer state on `device` and initialises the weights from
  /// run.seed. `parallel` and `device` must outlive the trainer.
  /// Throws InfeasibleError if the run breaks a legality rule, OutOfMemoryError past the limit.
  Trainer(const RunConfig& run, const ParallelContext& parallel, Device& device);
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  /// Optimizer step `step` (from 0) over samples [step * gbs, (step + 1) * gbs) of `source`, of
  /// which this data-parallel rank takes its share. Every rank of the run calls it together.
  /// Throws Error when loss or gradient norm are no longer finite.
  StepResult Step(const TokenSource& source, int64_t step);

  const RunConfig& run() const { return run_; }
  const ParallelContext& parallel() const { return parallel_; }
  GptModel& model() { return model_; }
  ParameterStore& parameters() { return store_; }
  Optimizer& optimizer() { return optimizer_; }

 private:
  /// Tokens and targets [N] of the sequences from sample `first_sample` on.
  struct Batch {
    Tensor tokens;
    Tensor targets;
  };
  Batch LoadBatch(const TokenSource& source, int64_t first_sample);
  double GlobalLoss(double local_sum);

  RunConfig run_;
  const ParallelContext& parallel_;
  Device& device_;
  ParameterStore store_;
  GptModel model_;
  Optimizer optimizer_;
  GradientReducer reducer_;
};

/// Worker threads of one rank: run.threads_per_rank, or if that is 0 an equal share of this
/// machine's cores, at least 1.
int ThreadsPerRank(const RunConfig& run);

}  // namespace trimtab
