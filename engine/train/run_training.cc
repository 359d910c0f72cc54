#include "engine/train/run_training.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <vector>

#include "engine/base/error.h"
#include "engine/config/rules.h"
#include "engine/data/dataset.h"
#include "engine/train/checkpointing.h"
#include "engine/train/trainer.h"

namespace trimtab {
namespace {

using Clock = std::chrono::steady_clock;

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// What the ranks share. Rank 0 writes it between two barriers, the others read it after them;
/// `peaks` has an element for each rank.
struct Shared {
  explicit Shared(int64_t ranks) : peaks(static_cast<size_t>(ranks)) {}

  TrainingSummary summary;
  std::unique_ptr<CheckpointWriter> writer;
  std::vector<int64_t> peaks;
};

class RankLoop {
 public:
  RankLoop(const RunConfig& run, const TrainingOptions& options, const TokenSource& source,
           ParallelContext& context, Shared& shared)
      : run_(run),
        options_(options),
        source_(source),
        context_(context),
        shared_(shared),
        device_(MakeCpuDevice(ThreadsPerRank(run))) {
    device_->memory().set_limit_bytes(run.memory_per_rank_bytes);
    trainer_.emplace(run, context, *device_);
  }

  void Run(const CheckpointReader* from) {
    int64_t step = 0;
    if (from != nullptr) {
      ReadState(*trainer_, *from);
      step = from->header().step;
    }
    int64_t saved = step;
    StopSignal stop = StopSignal::kNone;
    while (step < run_.steps && stop == StopSignal::kNone) {
      OneStep(step++);
      stop = StopRequested();
      const bool due = options_.save_every > 0 && step % options_.save_every == 0;
      if (due && stop != StopSignal::kCancel) {
        Save(step);
        saved = step;
      }
    }
    if (stop != StopSignal::kCancel && saved != step) Save(step);
    shared_.peaks[static_cast<size_t>(context_.rank)] = device_->memory().peak_total();
    if (context_.rank == 0) {
      shared_.summary.steps_done = step;
      shared_.summary.stopped_by = stop;
    }
  }

 private:
  void OneStep(int64_t index) {
    context_.world->Barrier();
    const Clock::time_point start = Clock::now();
    const StepResult result = trainer_->Step(source_, index);
    device_->Synchronize();
    context_.world->Barrier();
    if (context_.rank != 0) return;
    shared_.summary.last_loss = result.loss;
    if (!options_.on_step) return;
    const double seconds = SecondsSince(start);
    const double tokens = static_cast<double>(run_.global_batch * run_.sequence_length);
    options_.on_step({.step = index + 1,
                      .loss = result.loss,
                      .grad_norm = result.grad_norm,
                      .learning_rate = result.learning_rate,
                      .step_time_s = seconds,
                      .tokens_per_s = tokens / seconds});
  }

  /// Rank 0's answer, the same for all.
  StopSignal StopRequested() {
    if (!options_.stop_requested) return StopSignal::kNone;
    if (context_.rank == 0) shared_.summary.stopped_by = options_.stop_requested();
    context_.world->Barrier();
    const StopSignal stop = shared_.summary.stopped_by;
    context_.world->Barrier();
    return stop;
  }

  void Save(int64_t step) {
    if (options_.checkpoint.empty()) return;
    const Clock::time_point start = Clock::now();
    if (context_.rank == 0) {
      const std::vector<const ParameterSpec*> parameters = ParameterSpecs(*trainer_);
      shared_.writer = std::make_unique<CheckpointWriter>(options_.checkpoint,
                                                          HeaderOf(*trainer_, step), parameters);
    }
    context_.world->Barrier();
    WriteState(*trainer_, *shared_.writer);
    context_.world->Barrier();
    if (context_.rank != 0) return;
    shared_.writer->Finish();
    shared_.writer.reset();
    if (options_.on_save) options_.on_save(step, SecondsSince(start));
  }

  const RunConfig& run_;
  const TrainingOptions& options_;
  const TokenSource& source_;
  ParallelContext& context_;
  Shared& shared_;
  std::unique_ptr<Device> device_;
  std::optional<Trainer> trainer_;
};

/// A checkpoint this run can go on from.
std::unique_ptr<CheckpointReader> OpenCheckpoint(const RunConfig& run, const std::string& path) {
  if (path.empty()) return nullptr;
  auto reader = std::make_unique<CheckpointReader>(path);
  const CheckpointHeader& header = reader->header();
  if (!(header.run.model == run.model)) {
    throw InputError(
        fmt::format("{}: holds the model '{}' in another shape; expected '{}' as in "
                    "the run",
                    path, header.run.model.name, run.model.name));
  }
  if (header.samples != header.step * run.global_batch) {
    throw InputError(fmt::format(
        "{}: {} samples in {} steps; expected {} by the run's global batch "
        "of {}",
        path, header.samples, header.step, header.step * run.global_batch, run.global_batch));
  }
  return reader;
}

}  // namespace

std::unique_ptr<TokenSource> OpenTokenSource(const RunConfig& run) {
  if (run.data.empty()) return MakeSyntheticSource(run.model.vocab_size, run.seed);
  std::unique_ptr<TokenSource> source = OpenDataset(run.data, run.sequence_length, run.seed);
  if (source->vocab_size() > run.model.vocab_size) {
    throw InputError(fmt::format("{}: a vocabulary of {}; expected at most the model's {}",
                                 run.data, source->vocab_size(), run.model.vocab_size));
  }
  return source;
}

TrainingSummary RunTraining(const RunConfig& run, const TrainingOptions& options) {
  if (run.device != "cpu") {
    throw EnvironmentError(
        fmt::format("cannot train on device \"{}\"; expected \"cpu\"", run.device));
  }
  RequireLegal(run);
  if (!options.checkpoint.empty()) CheckCheckpointTarget(options.checkpoint);
  const std::unique_ptr<TokenSource> source = OpenTokenSource(run);
  const std::unique_ptr<CheckpointReader> from = OpenCheckpoint(run, options.load);

  Shared shared(run.layout.world_size());
  shared.summary.first_step = from != nullptr ? from->header().step : 0;
  RunInprocRanks(run.layout, [&](ParallelContext& context) {
    RankLoop(run, options, *source, context, shared).Run(from.get());
  });
  shared.summary.peak_mem_bytes = *std::max_element(shared.peaks.begin(), shared.peaks.end());
  return shared.summary;
}

}  // namespace trimtab
