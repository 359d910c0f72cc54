// Trainer: one rank's model, gradients and optimizer, and the training step.
//
// The same code runs on cpu and cuda, and on meta, where it is the dry run.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "engine/config/run/run_config.h"
#include "engine/data/dataset/token_source.h"
#include "engine/layers/fp8_state.h"
#include "engine/model/gpt_model.h"
#include "engine/optim/loss_scaler.h"
#include "engine/optim/optimizer.h"
#include "engine/parallel/sharded_data_parallel.h"
#include "engine/runtime/captured_steps.h"
#include "engine/train/routing_report.h"
#include "engine/train/stage_runner.h"

namespace trimtab {

struct StepResult {
  double loss = 0;       // mean cross-entropy per target of the global batch
  double grad_norm = 0;  // global, before clipping
  double learning_rate = 0;
  double loss_scale = 1;
  bool skipped = false;  // fp16: gradients overflowed, so weights stayed and the loss scale halved
  RoutingReport routing{};  // with experts; its losses are no part of `loss`
};

class Trainer {
 public:
  /// Allocates weights, gradients and optimizer state on `device` and initialises the weights from
  /// run.seed. `parallel` and `device` must outlive the trainer.
  /// Throws InfeasibleError if the run breaks a legality rule, OutOfMemoryError past the limit.
  Trainer(const RunConfig& run, const ParallelContext& parallel, Device& device);
  /// For who has planned all stages of the pipeline together: `program` is that of this one.
  Trainer(const RunConfig& run, const ParallelContext& parallel, Device& device,
          StageProgram program);
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  /// Optimizer step `step` (from 0) over the `gbs` samples of `source` that follow the first
  /// SamplesBefore(step), of which this data-parallel rank takes its share, cut over the
  /// context-parallel ranks. Every rank
  /// of the run calls it together. Throws Error when loss or gradient norm are no longer finite
  /// (fp16: and the loss scale cannot fall further). `capture`: whether all ranks allow captures of
  /// this step, where the caller has exchanged AllowsCapture; otherwise they are asked.
  StepResult Step(const TokenSource& source, int64_t step,
                  std::optional<bool> capture = std::nullopt);
  /// Returns true if this rank allows its next step to be captured. An observer looks at values on
  /// the host, which captured work cannot; a recorder wants to see every op.
  bool AllowsCapture() const;

  /// Samples of a source, in order.
  struct SampleRange {
    int64_t first = 0;
    int64_t count = 0;
  };
  /// Returns the samples that this rank reads in a step, in the order of its micro batches; none
  /// where other stages of the pipeline read them.
  SampleRange SamplesOf(int64_t step) const;

  /// Goes on where another run stood that took `samples` samples in its first `step` steps; its
  /// global batch may have been another one.
  void GoOnFrom(int64_t step, int64_t samples) {
    first_step_ = step;
    first_samples_ = samples;
  }
  /// Returns how many samples the steps before `step` take.
  int64_t SamplesBefore(int64_t step) const {
    return first_samples_ + (step - first_step_) * run_.global_batch;
  }

  /// The two parts of Step that follow its micro batches; a dry run may ask for them alone.
  /// Sums over the ranks what is left of the gradients.
  void ReduceGradients() { data_parallel_->FinishStep(); }
  /// fp8 scales, clipping, AdamW, gathering of weights; the sums over the ranks of the loss and of
  /// what routers count, and what routers make of that.
  void EndStep();

  const RunConfig& run() const { return run_; }
  const ParallelContext& parallel() const { return parallel_; }
  /// The chunks of the model that this rank holds, in order: one, unless the pipeline interleaves.
  const std::vector<std::unique_ptr<GptModel>>& chunks() const { return chunks_; }
  ParameterStore& parameters() { return store_; }
  ParameterShards& shards() { return data_parallel_->shards(); }
  Optimizer& optimizer() { return optimizer_; }

  /// Call before weights are read or written from outside, and after they were written: a
  /// checkpoint.
  void AwaitWeights() { data_parallel_->AwaitWeights(); }
  void WeightsChanged() { data_parallel_->WeightsChanged(); }

  /// What a checkpoint keeps beside weights and moments.
  LossScaler& loss_scaler() { return loss_scaler_; }
  /// nullptr unless the precision is fp8.
  Fp8State* fp8() { return fp8_.get(); }

  /// Told what linear layers multiply from now on; nullptr = nobody. Not owned.
  void Observe(LinearObserver* observer);

 private:
  /// Fills the ids that the chunk has use for with the sequences from sample `first_sample` on, at
  /// the positions that this rank has.
  void LoadBatch(const TokenSource& source, int64_t first_sample, const MicroBatch& batch);
  /// All micro batches of a step, of which the first is at sample `first_sample`, and what ends it.
  void RunActions(const TokenSource& source, int64_t first_sample);
  /// Decides whether the step is captured: from the second one on, where the device can and all
  /// ranks allow it.
  void BeginCapture(std::optional<bool> allowed);
  /// Whether that includes its micro batches: not where messages come between their passes, nor
  /// where the host must learn how many rows experts get.
  bool CapturesMicroBatches() const;
  /// Parts of EndStep: SumLoss adds the loss over the ranks, Update does all but that and routers.
  void SumLoss();
  void Update();
  void EndRouting();
  double MeanLoss();

  RunConfig run_;
  const ParallelContext& parallel_;
  Device& device_;
  ParameterStore store_;
  std::unique_ptr<Fp8State> fp8_;  // with precision fp8
  std::vector<std::unique_ptr<GptModel>> chunks_;
  std::unique_ptr<ShardedDataParallel> data_parallel_;
  Optimizer optimizer_;
  LossScaler loss_scaler_;
  LossTensors loss_;  // loss scale / tokens of the global batch; sum over this rank's tokens
  StageRunner stage_;
  RoutingReport routing_;  // of the last step
  double targets_ = 1;     // of the global batch of the step
  int64_t first_step_ = 0;
  int64_t first_samples_ = 0;  // taken before the first step
  bool warm_ = false;          // a step has run: every kernel has been chosen
  CapturedSteps captured_;
};

}  // namespace trimtab
