#include "engine/train/trainer.h"

#include <sched.h>

#include <algorithm>
#include <cmath>

#include "engine/config/rules.h"
#include "engine/optim/lr_schedule.h"

namespace trimtab {
namespace {

const RunConfig& Legal(const RunConfig& run) {
  RequireLegal(run);
  return run;
}

/// Allocates the store once the model has declared its parameters.
ParameterStore& Allocated(ParameterStore& store, Device& device, const RunConfig& run) {
  store.Allocate(device, run.layout.dp);
  store.Initialize(run.seed);
  return store;
}

/// Offsets at which a data-parallel bucket may begin: the first parameter of each layer.
std::vector<int64_t> BucketCuts(const GptModel& model) {
  std::vector<int64_t> cuts;
  for (const TransformerLayer& layer : model.layers()) {
    cuts.push_back(layer.first_parameter().offset);
  }
  return cuts;
}

}  // namespace

Trainer::Trainer(const RunConfig& run, const ParallelContext& parallel, Device& device)
    : run_(Legal(run)),
      parallel_(parallel),
      device_(device),
      model_(store_, LayerContext{.device = device,
                                  .parallel = parallel,
                                  .model = run_.model,
                                  .micro_batch = run_.layout.micro_batch,
                                  .sequence = run_.sequence_length}),
      optimizer_(run_.optimizer, parallel, Allocated(store_, device, run_)),
      reducer_(parallel, store_, BucketCuts(model_)) {}

Trainer::Batch Trainer::LoadBatch(const TokenSource& source, int64_t first_sample) {
  const int64_t batch = run_.layout.micro_batch;
  const int64_t sequence = run_.sequence_length;
  const Shape shape = {batch * sequence};
  Batch loaded = {Tensor::Empty(device_, shape, DType::kI32, MemoryTag::kActivations),
                  Tensor::Empty(device_, shape, DType::kI32, MemoryTag::kActivations)};
  if (device_.kind() == DeviceKind::kMeta) return loaded;

  std::vector<int32_t> sample(static_cast<size_t>(sequence + 1));
  for (int64_t b = 0; b < batch; ++b) {
    source.Sample(first_sample + b, sample);
    Tensor tokens = loaded.tokens.Slice(b * sequence, {sequence});
    Tensor targets = loaded.targets.Slice(b * sequence, {sequence});
    CopyFromHost(tokens, std::span<const int32_t>(sample).first(static_cast<size_t>(sequence)));
    CopyFromHost(targets, std::span<const int32_t>(sample).last(static_cast<size_t>(sequence)));
  }
  return loaded;
}

double Trainer::GlobalLoss(double local_sum) {
  float total = static_cast<float>(local_sum);
  if (parallel_.layout.dp > 1) {
    Tensor sum = Tensor::Empty(device_, {1}, DType::kF32, MemoryTag::kWorkspace);
    CopyFromHost(sum, std::span<const float>(&total, 1));
    parallel_.dp->AllReduce(sum);
    CopyToHost(sum, std::span<float>(&total, 1));
  }
  return static_cast<double>(total) / static_cast<double>(run_.global_batch * run_.sequence_length);
}

StepResult Trainer::Step(const TokenSource& source, int64_t step) {
  const int64_t micro_batches = run_.num_micro_batches();
  const int64_t first_sample =
      step * run_.global_batch + parallel_.dp_rank * micro_batches * run_.layout.micro_batch;
  // The gradient of the mean over the global batch: data-parallel ranks then simply add up.
  const float gradient_scale = 1.0f / static_cast<float>(run_.global_batch * run_.sequence_length);

  double loss_sum = 0;
  for (int64_t m = 0; m < micro_batches; ++m) {
    const Batch batch = LoadBatch(source, first_sample + m * run_.layout.micro_batch);
    MicroBatchState state;
    loss_sum += model_.Forward(batch.tokens, batch.targets, gradient_scale, state);
    const bool last = m + 1 == micro_batches;
    model_.Backward(state, /*accumulate=*/m > 0, [&](int64_t offset) {
      if (last) reducer_.OnComplete(offset);
    });
  }
  reducer_.Finish();

  StepResult result;
  result.loss = GlobalLoss(loss_sum);
  result.learning_rate = LearningRate(run_.optimizer, step, run_.steps);
  result.grad_norm = optimizer_.Step(result.learning_rate, step);
  if (!std::isfinite(result.loss) || !std::isfinite(result.grad_norm)) {
    throw Error(
        ExitCode::kInternal,
        fmt::format("step {}: loss {} and gradient norm {} are not finite; expected numbers "
                    "(try a lower learning rate)",
                    step, result.loss, result.grad_norm));
  }
  return result;
}

int ThreadsPerRank(const RunConfig& run) {
  if (run.threads_per_rank > 0) return static_cast<int>(run.threads_per_rank);
  cpu_set_t cores;
  CPU_ZERO(&cores);
  const int count = sched_getaffinity(0, sizeof(cores), &cores) == 0 ? CPU_COUNT(&cores) : 1;
  return std::max(1, count / static_cast<int>(run.layout.world_size()));
}

}  // namespace trimtab
