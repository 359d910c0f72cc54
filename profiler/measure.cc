#include "profiler/measure.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <utility>

#include "cost_model/estimate.h"
#include "engine/base/error.h"
#include "engine/comm/parallel_context.h"
#include "engine/config/rules.h"
#include "engine/data/dataset.h"
#include "engine/train/trainer.h"
#include "profiler/stats.h"
#include "profiler/timing_recorder.h"

namespace trimtab {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kMaxLosses = 10;

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

std::unique_ptr<TokenSource> OpenSource(const RunConfig& run) {
  std::unique_ptr<TokenSource> source = run.data.empty()
                                            ? MakeSyntheticSource(run.model.vocab_size, run.seed)
                                            : OpenDataset(run.data, run.sequence_length, run.seed);
  if (source->vocab_size() > run.model.vocab_size) {
    throw InputError(fmt::format("{}: its token ids go up to {}, the model's vocabulary has {}",
                                 run.data, source->vocab_size() - 1, run.model.vocab_size));
  }
  return source;
}

/// What the ranks of one measurement share. Written by rank 0 between two barriers, except for
/// `memory`, of which every rank writes its own element.
struct Shared {
  explicit Shared(int64_t ranks) : memory(static_cast<size_t>(ranks)) {}

  bool finished = false;
  std::vector<double> step_times_s;
  double counted_s = 0;
  std::vector<double> losses;
  std::map<std::string, double> breakdown_s;
  struct RankMemory {
    int64_t peak = 0;
    BytesByTag by_tag{};
  };
  std::vector<RankMemory> memory;
};

/// Enough steps, and the median has settled; or a limit is reached.
bool IsFinished(const MeasureOptions& options, const Shared& shared) {
  const int64_t count = static_cast<int64_t>(shared.step_times_s.size());
  if (count >= options.max_steps || shared.counted_s >= options.max_seconds) return true;
  if (count < options.steps) return false;
  const double median = Median(shared.step_times_s);
  return MedianAbsoluteDeviation(shared.step_times_s, median) <= options.stable_mad * median;
}

class RankLoop {
 public:
  RankLoop(const RunConfig& run, const MeasureOptions& options, const TokenSource& source,
           ParallelContext& context, Shared& shared)
      : options_(options),
        source_(source),
        context_(context),
        shared_(shared),
        device_(MakeCpuDevice(ThreadsPerRank(run))) {
    device_->memory().set_limit_bytes(run.memory_per_rank_bytes);
    trainer_ = std::make_unique<Trainer>(run, context, *device_);
  }

  void Run() {
    for (int64_t i = 0; i < options_.warmup; ++i) TimedStep();
    while (!Finished()) {
      const double seconds = TimedStep();
      if (context_.rank == 0) Count(seconds);
    }
    if (options_.breakdown) BreakdownStep();
    const MemoryTracker& memory = device_->memory();
    shared_.memory[static_cast<size_t>(context_.rank)] = {memory.peak_total(),
                                                          memory.by_tag_at_peak()};
  }

 private:
  /// From all ranks ready to all ranks done.
  double TimedStep() {
    context_.world->Barrier();
    const Clock::time_point start = Clock::now();
    const StepResult result = trainer_->Step(source_, step_++);
    device_->Synchronize();
    context_.world->Barrier();
    const double seconds = SecondsSince(start);
    if (context_.rank == 0 && shared_.losses.size() < kMaxLosses) {
      shared_.losses.push_back(result.loss);
    }
    return seconds;
  }

  void Count(double seconds) {
    shared_.step_times_s.push_back(seconds);
    shared_.counted_s += seconds;
    shared_.finished = IsFinished(options_, shared_);
  }

  /// Rank 0's decision, seen by all: what it wrote before the barrier, they read after it. It
  /// writes again only after the barrier that ends the next step.
  bool Finished() {
    context_.world->Barrier();
    return shared_.finished;
  }

  void BreakdownStep() {
    TimingRecorder recorder;
    if (context_.rank == 0) device_->set_recorder(&recorder);
    const double total = TimedStep();
    device_->set_recorder(nullptr);
    if (context_.rank != 0) return;
    double accounted = 0;
    for (const auto& [name, seconds] : recorder.seconds()) accounted += seconds;
    shared_.breakdown_s = recorder.seconds();
    shared_.breakdown_s["other"] = std::max(0.0, total - accounted);
  }

  const MeasureOptions& options_;
  const TokenSource& source_;
  ParallelContext& context_;
  Shared& shared_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<Trainer> trainer_;
  int64_t step_ = 0;
};

Measurement Summarize(const RunConfig& run, const MeasureOptions& options, Shared shared) {
  const double ranks = static_cast<double>(run.layout.world_size());
  Measurement m;
  m.step_time_s = Median(shared.step_times_s);
  m.step_time_mad_s = MedianAbsoluteDeviation(shared.step_times_s, m.step_time_s);
  m.steps_measured = static_cast<int64_t>(shared.step_times_s.size());
  m.tokens_per_s = static_cast<double>(run.global_batch * run.sequence_length) / m.step_time_s;
  m.tokens_per_s_per_gpu = m.tokens_per_s / ranks;
  const double flops_per_s = static_cast<double>(ModelFlops(run)) / m.step_time_s / ranks;
  m.model_tflops_per_gpu = flops_per_s / 1e12;
  if (options.peak_flops_per_rank > 0) m.mfu = flops_per_s / options.peak_flops_per_rank;

  const auto fullest =
      std::max_element(shared.memory.begin(), shared.memory.end(),
                       [](const auto& a, const auto& b) { return a.peak < b.peak; });
  m.peak_mem_bytes = fullest->peak;
  for (size_t tag = 0; tag < kMemoryTagCount; ++tag) {
    m.memory_bytes[std::string(Name(static_cast<MemoryTag>(tag)))] = fullest->by_tag[tag];
  }
  m.breakdown_s = std::move(shared.breakdown_s);
  m.losses = std::move(shared.losses);
  return m;
}

}  // namespace

Measurement Measure(const RunConfig& run, const MeasureOptions& options) {
  TRIMTAB_ASSERT(options.steps >= 1 && options.max_steps >= options.steps && options.warmup >= 0,
                 "measure {} to {} steps after {}", options.steps, options.max_steps,
                 options.warmup);
  if (run.device != "cpu") {
    throw EnvironmentError(
        fmt::format("cannot measure on device \"{}\": this machine runs \"cpu\" only", run.device));
  }
  RequireLegal(run);
  RunConfig measured = run;
  // The learning rate needs a length; what is measured does not depend on it.
  if (measured.steps == 0) measured.steps = options.warmup + options.max_steps + 1;

  const std::unique_ptr<TokenSource> source = OpenSource(measured);
  Shared shared(run.layout.world_size());
  RunInprocRanks(run.layout, [&](ParallelContext& context) {
    RankLoop(measured, options, *source, context, shared).Run();
  });
  return Summarize(run, options, std::move(shared));
}

}  // namespace trimtab
