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

std::unique_ptr<Fp8State> MakeFp8State(const RunConfig& run) {
  return TypesOf(run.layout).fp8 ? std::make_unique<Fp8State>(run.fp8) : nullptr;
}

void Upload(Tensor& scalar, double value) {
  const float host = static_cast<float>(value);
  CopyFromHost(scalar, std::span<const float>(&host, 1));
}

}  // namespace

Trainer::Trainer(const RunConfig& run, const ParallelContext& parallel, Device& device)
    : run_(Legal(run)),
      parallel_(parallel),
      device_(device),
      fp8_(MakeFp8State(run_)),
      model_(store_, LayerContext{.device = device,
                                  .parallel = parallel,
                                  .model = run_.model,
                                  .micro_batch = run_.layout.micro_batch,
                                  .sequence = run_.sequence_length,
                                  .types = TypesOf(run_.layout),
                                  .fp8 = fp8_.get()}),
      data_parallel_(parallel, store_, device, fp8_.get()),
      optimizer_(run_.optimizer, parallel, data_parallel_.shards()) {
  model_.set_hooks(&data_parallel_);
  if (TypesOf(run_.layout).loss_scaling) loss_scaler_ = LossScaler(run_.loss_scale);
  batch_ = MicroBatch::Empty(model_.context());
  gradient_scale_ = Tensor::Empty(device, {1}, DType::kF32, MemoryTag::kOptimizer);
  loss_sum_ = Tensor::Empty(device, {1}, DType::kF32, MemoryTag::kOptimizer);
  if (device.kind() != DeviceKind::kMeta) {
    store_.MakeInitialValues(
        run_.seed, HostThreads(device),
        [this](const Parameter& parameter, int64_t begin, std::span<const float> values) {
          optimizer_.WriteWeights(parameter.offset + begin, values);
        });
  }
  if (fp8_ != nullptr) {
    fp8_->RequireNamedLayers();
    fp8_->Allocate(device, /*keeps_weights=*/!shards().weights_sharded());
  }
  WeightsChanged();
}

void Trainer::WeightsChanged() {
  // Sharded ones are quantised whenever they are gathered.
  if (fp8_ != nullptr && !shards().weights_sharded()) fp8_->QuantizeWeights(parallel_);
}

void Trainer::LoadBatch(const TokenSource& source, int64_t first_sample) {
  if (device_.kind() == DeviceKind::kMeta) return;
  const auto batch = static_cast<size_t>(run_.layout.micro_batch);
  const auto sequence = static_cast<size_t>(run_.sequence_length);
  std::vector<int32_t> tokens(batch * sequence);
  std::vector<int32_t> targets(batch * sequence);
  std::vector<int32_t> sample(sequence + 1);
  for (size_t b = 0; b < batch; ++b) {
    source.Sample(first_sample + static_cast<int64_t>(b), sample);
    std::copy_n(sample.begin(), sequence, tokens.begin() + static_cast<int64_t>(b * sequence));
    std::copy_n(sample.begin() + 1, sequence, targets.begin() + static_cast<int64_t>(b * sequence));
  }
  CopyFromHost(batch_.tokens, tokens);
  CopyFromHost(batch_.targets, targets);
}

void Trainer::RunCaptured(std::unique_ptr<CapturedWork>& graph, const std::function<void()>& work) {
  // An observer looks at values on the host, which captured work cannot; a recorder wants to see
  // every op.
  const bool capture = warm_ && !model_.observed() && device_.recorder() == nullptr &&
                       device_.CanCapture() && parallel_.tp->CanCapture() &&
                       parallel_.dp->CanCapture();
  if (!capture) {
    graphs_ = {};  // their memory is needed for this
    return work();
  }
  if (graph == nullptr) graph = device_.Capture(work);
  graph->Replay();
}

void Trainer::RunMicroBatch(bool first, bool last) {
  RunCaptured(graphs_.micro_batch[first ? 1 : 0][last ? 1 : 0], [&] {
    MicroBatchState state;
    model_.Forward(batch_, gradient_scale_, loss_sum_, state);
    data_parallel_.StartBackward(first, last);
    model_.Backward(state, data_parallel_.accumulates());
    data_parallel_.FinishBackward();
  });
}

void Trainer::EndStep() {
  device_.EnterPiece({PieceKind::kUpdate});
  RunCaptured(graphs_.update, [&] {
    if (fp8_ != nullptr) fp8_->EndStep(parallel_);
    optimizer_.Update();
    data_parallel_.GatherUpdated();
    WeightsChanged();
  });
  if (parallel_.layout.dp > 1) parallel_.dp->AllReduce(loss_sum_);
}

double Trainer::MeanLoss() {
  float total = 0;
  CopyToHost(loss_sum_, std::span<float>(&total, 1));
  return static_cast<double>(total) / static_cast<double>(run_.global_batch * run_.sequence_length);
}

StepResult Trainer::Step(const TokenSource& source, int64_t step) {
  const int64_t micro_batches = run_.num_micro_batches();
  const int64_t first_sample =
      step * run_.global_batch + parallel_.dp_rank * micro_batches * run_.layout.micro_batch;
  StepResult result = {.learning_rate = LearningRate(run_.optimizer, step, run_.steps),
                       .loss_scale = loss_scaler_.scale()};
  // The gradient of the mean over the global batch: data-parallel ranks then simply add up.
  const auto tokens = static_cast<double>(run_.global_batch * run_.sequence_length);
  Upload(gradient_scale_, result.loss_scale / tokens);
  Upload(loss_sum_, 0.0);

  for (int64_t m = 0; m < micro_batches; ++m) {
    LoadBatch(source, first_sample + m * run_.layout.micro_batch);
    RunMicroBatch(m == 0, m + 1 == micro_batches);
  }
  optimizer_.Prepare(result.learning_rate, step - loss_scaler_.skipped(), result.loss_scale);
  EndStep();
  warm_ = true;

  result.loss = MeanLoss();
  const UpdateOutcome outcome = optimizer_.Outcome();
  result.grad_norm = outcome.grad_norm;
  result.skipped = !outcome.applied;
  // The dry run reads zeros.
  if (device_.kind() == DeviceKind::kMeta) return result;
  if (!std::isfinite(result.loss) || (result.skipped && !loss_scaler_.CanSkip())) {
    throw Error(
        ExitCode::kInternal,
        fmt::format("step {}: loss {} and gradient norm {} are not finite; expected numbers "
                    "(try a lower learning rate)",
                    step, result.loss, result.grad_norm));
  }
  loss_scaler_.EndStep(result.skipped);
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
