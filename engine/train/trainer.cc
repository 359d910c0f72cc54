#include "engine/train/trainer.h"

#include <algorithm>
#include <cmath>

#include "engine/config/model/name_pattern.h"
#include "engine/config/rules/rules.h"
#include "engine/layers/moe/expected_expert_counts.h"
#include "engine/optim/lr_schedule.h"
#include "engine/runtime/chunks.h"
#include "engine/runtime/context.h"
#include "engine/runtime/whole_model.h"
#include "engine/train/micro_batch_ids.h"
#include "engine/train/numeric_error.h"

namespace trimtab {
namespace {

const RunConfig& Legal(const RunConfig& run) {
  RequireLegal(run);
  return run;
}

std::unique_ptr<Fp8State> MakeFp8State(const RunConfig& run) {
  return TypesOf(run.layout.numerics).fp8 ? std::make_unique<Fp8State>(run.fp8) : nullptr;
}

void Upload(Tensor& scalar, double value) {
  const float host = static_cast<float>(value);
  CopyFromHost(scalar, std::span<const float>(&host, 1));
}

std::vector<std::unique_ptr<GptModel>> MakeChunks(ParameterStore& store,
                                                  const LayerContext& context,
                                                  const RunConfig& run) {
  std::vector<std::unique_ptr<GptModel>> chunks;
  for (const ModelChunk& chunk : ChunksOf(run, context.parallel.pp_rank)) {
    chunks.push_back(std::make_unique<GptModel>(store, context, chunk));
  }
  return chunks;
}

std::vector<const GptModel*> Pointers(const std::vector<std::unique_ptr<GptModel>>& chunks) {
  std::vector<const GptModel*> pointers;
  for (const auto& chunk : chunks) pointers.push_back(chunk.get());
  return pointers;
}

/// The table that first and last stage share and train; nullptr where there is none, or one for
/// both uses.
Parameter* SharedTable(const std::vector<std::unique_ptr<GptModel>>& chunks,
                       const ParallelContext& parallel) {
  if (parallel.layout.pp == 1) return nullptr;
  for (const auto& chunk : chunks) {
    Parameter* table = chunk->tied_table();
    if (table != nullptr) return table->spec.trainable ? table : nullptr;
  }
  return nullptr;
}

/// Data parallelism of the chunks, which declare its parameters and tell it what they use.
std::unique_ptr<ShardedDataParallel> MakeDataParallel(
    const std::vector<std::unique_ptr<GptModel>>& chunks, const ParallelContext& parallel,
    ParameterStore& store, Device& device, Fp8State* fp8) {
  auto data_parallel = std::make_unique<ShardedDataParallel>(parallel, store, device, fp8,
                                                             SharedTable(chunks, parallel));
  for (const auto& chunk : chunks) chunk->set_hooks(data_parallel.get());
  return data_parallel;
}

/// Throws InputError where the run names parameters that its model, which `parameters` are of, does
/// not have, or freezes all.
void RequireNamesOfParameters(const RunConfig& run, const ParameterStore& parameters) {
  const auto matches_any = [&](const std::string& pattern) {
    return std::ranges::any_of(parameters.parameters(), [&](const Parameter* each) {
      return MatchesPattern(pattern, each->spec.name.view());
    });
  };
  const std::string example(parameters.parameters().back()->spec.name);
  for (const std::string& pattern : run.frozen) {
    if (matches_any(pattern)) continue;
    throw InputError(
        fmt::format("frozen: '{}' matches no parameter of '{}'; expected names such as {}", pattern,
                    run.model.name, example));
  }
  for (const ParameterGroup& group : run.optimizer.groups) {
    if (std::ranges::any_of(group.match, matches_any)) continue;
    throw InputError(fmt::format(
        "optimizer.groups: '{}' matches no parameter of '{}'; expected names such as {}",
        group.match.front(), run.model.name, example));
  }
  const auto trainable = [](const Parameter* each) { return each->spec.trainable; };
  if (std::ranges::any_of(parameters.parameters(), trainable)) return;
  throw InputError(fmt::format("frozen: every parameter of '{}' is frozen; expected some to train",
                               run.model.name));
}

/// Parts of a step that are captured, each what it has added up: a micro batch, and whether it is
/// the first or the last; what ends the step, with the last micro batch or on its own.
enum CapturedPart : int { kFirstOfStep = 1, kLastOfStep = 2, kUpdate = 4 };

LossTensors NewLossTensors(Device& device) {
  const auto scalar = [&device] {
    return Tensor::Empty(device, {1}, DType::kF32, MemoryTag::kOptimizer);
  };
  return {.gradient_scale = scalar(), .loss_sum = scalar()};
}

}  // namespace

Trainer::Trainer(const RunConfig& run, const ParallelContext& parallel, Device& device)
    : Trainer(run, parallel, device, ProgramOf(Legal(run), parallel.pp_rank)) {}

Trainer::Trainer(const RunConfig& run, const ParallelContext& parallel, Device& device,
                 StageProgram program)
    : run_(Legal(run)),
      parallel_(parallel),
      device_(device),
      store_(run_.frozen),
      fp8_(MakeFp8State(run_)),
      chunks_(MakeChunks(store_, ContextOf(run_, parallel, device, fp8_.get()), run_)),
      data_parallel_(MakeDataParallel(chunks_, parallel, store_, device, fp8_.get())),
      optimizer_(run_.optimizer, parallel, shards()),
      loss_(NewLossTensors(device)),
      stage_(Pointers(chunks_), std::move(program), loss_, fp8_.get(), *data_parallel_),
      captured_(parallel, device) {
  if (!run_.frozen.empty() || !run_.optimizer.groups.empty()) {
    RequireNamesOfParameters(run_, WholeModelDeclaration(run_, parallel, device).parameters);
  }
  if (TypesOf(run_.layout.numerics).loss_scaling) loss_scaler_ = LossScaler(run_.loss_scale);
  if (device.kind() != DeviceKind::kMeta) {
    store_.MakeInitialValues(
        run_.seed, HostThreads(device),
        [this](const Parameter& parameter, int64_t begin, std::span<const float> values) {
          shards().WriteWeights(parameter.offset + begin, values);
        });
  }
  if (fp8_ != nullptr) {
    // Other stages may have the layers that the configuration names.
    if (run_.layout.pp == 1 || run_.fp8.bf16_layers.empty()) {
      fp8_->RequireNamedLayers();
    } else {
      WholeModelDeclaration(run_, parallel, device).fp8.RequireNamedLayers();
    }
    fp8_->Allocate(device, stage_.in_flight(), /*keeps_weights=*/!shards().weights_sharded());
  }
  WeightsChanged();
}

void Trainer::Observe(LinearObserver* observer) {
  for (const auto& chunk : chunks_) chunk->Observe(observer);
}

void Trainer::LoadBatch(const TokenSource& source, int64_t first_sample, const MicroBatch& batch) {
  const bool none =
      !batch.tokens.defined() && !batch.targets.defined() && !batch.positions.defined();
  if (none || device_.kind() == DeviceKind::kMeta) return;
  const MicroBatchIds ids =
      ReadMicroBatch(source, first_sample, run_.sequence_length,
                     chunks_.front()->context().row_layout(), run_.packing.masks_documents());
  const auto put = [](Tensor target, const std::vector<int32_t>& values) {
    if (target.defined()) CopyFromHost(target, values);
  };
  put(batch.tokens, ids.tokens);
  put(batch.targets, ids.targets);
  put(batch.positions, ids.positions);
}

bool Trainer::AllowsCapture() const {
  return !chunks_.front()->observed() && device_.recorder() == nullptr;
}

void Trainer::BeginCapture(std::optional<bool> allowed) {
  // Messages from one graph to the next cannot be captured.
  const bool possible = warm_ && !parallel_.layout.overlap_param_gather && device_.CanCapture() &&
                        parallel_.tp->CanCapture() && parallel_.cp->CanCapture() &&
                        parallel_.dp->CanCapture() && parallel_.pp->CanCapture();
  captured_.BeginStep(possible, AllowsCapture(), allowed);
}

bool Trainer::CapturesMicroBatches() const {
  if (parallel_.layout.pp > 1) return false;
  return !run_.model.moe.used() || RowsAreKnown(chunks_.front()->context(), run_.model.moe);
}

void Trainer::RunActions(const TokenSource& source, int64_t first_sample) {
  // Where no message comes between, forward and backward pass of a micro batch are one graph.
  const bool captures = CapturesMicroBatches();
  // So is the update with the last one, but for what the host reads of routers before it.
  const bool ends_within = captures && !run_.model.moe.used();
  const std::span<const Action> program = stage_.program();
  const size_t at_once = captures ? 2 : 1;
  for (size_t i = 0; i < program.size(); i += at_once) {
    const Action& first = program[i];
    const bool last = i + at_once == program.size();
    if (first.kind == ActionKind::kForward) {
      LoadBatch(source, first_sample + first.micro_batch * run_.layout.micro_batch,
                stage_.BatchOf(first));
    }
    const auto run = [&] {
      for (size_t j = i; j < i + at_once; ++j) {
        device_.EnterAction(static_cast<int64_t>(j));
        stage_.Run(program[j]);
      }
      if (!last) return;
      device_.EnterAction(static_cast<int64_t>(program.size()));
      stage_.Finish();
      ReduceGradients();
      if (!ends_within) return;
      SumLoss();
      Update();
    };
    if (captures) {
      captured_.Run((i == 0 ? kFirstOfStep : 0) + (last ? kLastOfStep : 0) +
                        (last && ends_within ? kUpdate : 0),
                    run);
    } else {
      run();
    }
  }
  if (!ends_within) EndStep();
}

void Trainer::SumLoss() {
  device_.EnterPiece({PieceKind::kUpdate});
  // First: what is gathered at the end may be under way until the next step needs it.
  if (parallel_.dp->size() > 1) parallel_.dp->AllReduce(loss_.loss_sum);
  if (parallel_.layout.pp > 1) parallel_.pp->AllReduce(loss_.loss_sum);
}

void Trainer::Update() {
  if (fp8_ != nullptr) fp8_->EndStep(parallel_);
  optimizer_.Update();
  data_parallel_->GatherUpdated();
}

void Trainer::EndStep() {
  SumLoss();
  EndRouting();
  captured_.Run(kUpdate, [this] { Update(); });
}

void Trainer::EndRouting() {
  Tensor statistics = store_.buffers().statistics();
  if (!run_.model.moe.used()) return;
  if (statistics.defined() && parallel_.dp->size() > 1) parallel_.dp->AllReduce(statistics);
  for (const auto& chunk : chunks_) chunk->EndStep();
  routing_ = OverStages(ReportRouting(chunks_, targets_), parallel_, device_);
}

double Trainer::MeanLoss() {
  float total = 0;
  CopyToHost(loss_.loss_sum, std::span<float>(&total, 1));
  return static_cast<double>(total) / targets_;
}

Trainer::SampleRange Trainer::SamplesOf(int64_t step) const {
  const int64_t count = run_.num_micro_batches() * run_.layout.micro_batch;
  const bool reads = parallel_.pp_rank == 0 || parallel_.pp_rank + 1 == run_.layout.pp;
  return {SamplesBefore(step) + parallel_.dp_rank * count, reads ? count : 0};
}

StepResult Trainer::Step(const TokenSource& source, int64_t step, std::optional<bool> capture) {
  const int64_t first_sample = SamplesOf(step).first;
  StepResult result = {.learning_rate = LearningRate(run_.optimizer, step, run_.steps),
                       .loss_scale = loss_scaler_.scale()};
  // The gradient of the mean over the targets of the global batch, which every rank counts: ranks
  // then simply add up. The dry run reads no data.
  const bool masks = run_.packing.masks_documents() && device_.kind() != DeviceKind::kMeta;
  targets_ = static_cast<double>(
      CountTargets(source, SamplesBefore(step), run_.global_batch, run_.sequence_length, masks));
  Upload(loss_.gradient_scale, result.loss_scale / targets_);
  Upload(loss_.loss_sum, 0.0);
  if (Tensor statistics = store_.buffers().statistics(); statistics.defined()) {
    CopyFromHost(statistics, std::vector<float>(static_cast<size_t>(statistics.numel())));
  }

  optimizer_.Prepare(result.learning_rate, step - loss_scaler_.skipped(), result.loss_scale);
  BeginCapture(capture);
  RunActions(source, first_sample);
  warm_ = true;

  result.loss = MeanLoss();
  result.routing = routing_;
  const UpdateOutcome outcome = optimizer_.Outcome();
  result.grad_norm = outcome.grad_norm;
  result.skipped = !outcome.applied;
  // The dry run reads zeros.
  if (device_.kind() == DeviceKind::kMeta) return result;
  if (!std::isfinite(result.loss) || (result.skipped && !loss_scaler_.CanSkip())) {
    throw NumericError(
        fmt::format("step {}: loss {} and gradient norm {} are not finite; expected numbers "
                    "(try a lower learning rate)",
                    step, result.loss, result.grad_norm));
  }
  loss_scaler_.EndStep(result.skipped);
  return result;
}

}  // namespace trimtab
