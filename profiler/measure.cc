#include "profiler/measure.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>

#include "cost_model/estimate.h"
#include "cost_model/hardware/numerics.h"
#include "engine/base/error.h"
#include "engine/base/log.h"
#include "engine/config/rules/rules.h"
#include "engine/data/dataset/open_token_source.h"
#include "engine/data/dataset/sample_prefetcher.h"
#include "engine/device/cuda/loader.h"
#include "engine/train/trainer.h"
#include "profiler/other_work.h"
#include "profiler/probe.h"
#include "profiler/stats.h"
#include "profiler/timing_recorder.h"

namespace trimtab {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kMaxLosses = 10;
// Between two readings of the probe: long enough that readings stay a small part of a visit.
constexpr double kBlockSeconds = 0.25;
constexpr int64_t kAnyLength = 1000;  // of a run that has none
constexpr size_t kHostWords = 32;     // of a host's name, as ranks exchange it

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// What the rank that speaks for this process measured in one visit, and of all ranks the memory.
struct Measured {
  std::vector<double> step_times_s;
  double counted_s = 0;
  std::vector<StepBlock> blocks;
  std::map<std::string, double> breakdown_s;
  struct RankMemory {
    int64_t peak = 0;
    BytesByTag by_tag{};
  };
  std::vector<RankMemory> memory;
  std::vector<GpuPower> power;  // of the GPUs that tell, each once
  std::vector<Straggler> stragglers;
};

/// Enough steps, and the median has settled; or a limit is reached.
bool IsFinished(const MeasureOptions& options, const Measured& measured) {
  const int64_t count = static_cast<int64_t>(measured.step_times_s.size());
  if (count >= options.max_steps || measured.counted_s >= options.max_seconds) return true;
  if (count < options.steps || measured.counted_s < options.min_seconds) return false;
  const double median = Median(measured.step_times_s);
  return MedianAbsoluteDeviation(measured.step_times_s, median) <= options.stable_mad * median;
}

Measurement Summarize(const RunConfig& run, const MeasureOptions& options, Measured measured) {
  const double ranks = static_cast<double>(run.layout.world_size());
  Measurement m;
  m.step_time_s = Median(measured.step_times_s);
  m.step_time_mad_s = MedianAbsoluteDeviation(measured.step_times_s, m.step_time_s);
  m.steps_measured = static_cast<int64_t>(measured.step_times_s.size());
  m.tokens_per_s = static_cast<double>(run.global_batch * run.sequence_length) / m.step_time_s;
  m.tokens_per_s_per_gpu = m.tokens_per_s / ranks;
  const double flops_per_s = ModelFlops(run) / m.step_time_s / ranks;
  m.model_tflops_per_gpu = flops_per_s / 1e12;
  if (options.peak_flops_per_rank > 0) m.mfu = flops_per_s / options.peak_flops_per_rank;

  const auto fullest =
      std::max_element(measured.memory.begin(), measured.memory.end(),
                       [](const auto& a, const auto& b) { return a.peak < b.peak; });
  m.peak_mem_bytes = fullest->peak;
  for (size_t tag = 0; tag < kMemoryTagCount; ++tag) {
    if (static_cast<MemoryTag>(tag) == MemoryTag::kKvCache) continue;  // training has none
    m.memory_bytes[std::string(Name(static_cast<MemoryTag>(tag)))] = fullest->by_tag[tag];
  }
  m.breakdown_s = std::move(measured.breakdown_s);
  m.blocks = std::move(measured.blocks);
  m.stragglers = std::move(measured.stragglers);
  m.precision = Name(run.layout.numerics.precision);
  m.optimizer_state = OptimizerStateName(run.layout.numerics);
  const int64_t tokens = m.steps_measured * run.global_batch * run.sequence_length;
  m.power = TotalPower(measured.power, static_cast<double>(tokens));
  return m;
}

}  // namespace

class Visitor::Loop {
 public:
  Loop(const RunConfig& run, const MeasureOptions& options, const TokenSource& source, Rank& rank)
      : run_(run),
        options_(options),
        samples_(source, run.sequence_length + 1, kMicroBatchesAhead * run.layout.micro_batch),
        rank_(rank),
        power_(OpenPower(rank)),
        trainer_(run, rank.parallel(), rank.device()),
        probe_(rank) {
    // Ranks of several processes would take each other for others; a GPU does not share its cores.
    if (rank.in_process() && rank.speaks() && rank.device().kind() == DeviceKind::kCpu) {
      other_work_.emplace();
    }
  }

  Measurement Visit() {
    measured_ = {};
    ++visits_;
    for (int64_t i = 0; visits_ == 1 && i < options_.warmup; ++i) TimedStep();
    if (power_ != nullptr) power_->Start();
    CountSteps();
    GatherPower();
    FindSlowRanks();
    if (visits_ == options_.breakdown_visit) BreakdownStep();
    GatherMemory();
    Measurement measurement = Summarize(run_, options_, std::move(measured_));
    measurement.losses = losses_;
    return measurement;
  }

 private:
  enum class Next : int64_t { kStep, kBlock, kEnd };

  /// Blocks of steps, a reading of the probe before, between and after them.
  void CountSteps() {
    double before = probe_.Seconds();
    if (other_work_) other_work_->Share();  // of what was before
    for (Next next = Next::kStep; next != Next::kEnd;) {
      double block_s = 0;
      int64_t steps = 0;
      do {
        const double seconds = TimedStep();
        measured_.step_times_s.push_back(seconds);
        measured_.counted_s += seconds;
        block_s += seconds;
        ++steps;
        next = WhatNext(block_s);
      } while (next == Next::kStep);
      const double after = probe_.Seconds();
      measured_.blocks.push_back({.step_s = block_s / static_cast<double>(steps),
                                  .probe_s = std::sqrt(before * after),
                                  .taken = other_work_ ? other_work_->Share() : 0});
      before = after;
    }
  }

  /// Rank 0's decision, the same for all.
  Next WhatNext(double block_s) {
    Next next = block_s < kBlockSeconds ? Next::kStep : Next::kBlock;
    if (IsFinished(options_, measured_)) next = Next::kEnd;
    return static_cast<Next>(rank_.FromFirst(static_cast<int64_t>(next)));
  }

  /// Returns the seconds from all ranks ready to all ranks done. All ranks pass the same `capture`:
  /// an exchange within the step would be part of its time.
  double TimedStep(bool capture = true) {
    rank_.Barrier();
    const Clock::time_point start = Clock::now();
    const Trainer::SampleRange next = trainer_.SamplesOf(step_ + 1);
    samples_.Expect(next.first, next.count);
    const StepResult result = trainer_.Step(samples_, step_++, capture);
    rank_.device().Synchronize();
    rank_.Barrier();
    const double seconds = SecondsSince(start);
    if (losses_.size() < kMaxLosses) losses_.push_back(result.loss);
    return seconds;
  }

  void BreakdownStep() {
    TimingRecorder recorder(rank_.device());
    if (rank_.speaks()) rank_.device().set_recorder(&recorder);
    const double total = TimedStep(/*capture=*/false);
    rank_.device().set_recorder(nullptr);
    double accounted = 0;
    for (const auto& [name, seconds] : recorder.seconds()) accounted += seconds;
    measured_.breakdown_s = recorder.seconds();
    measured_.breakdown_s["other"] = std::max(0.0, total - accounted);
  }

  /// Of its machine; -1 = none.
  static int GpuOf(Rank& rank) {
    if (rank.device().kind() != DeviceKind::kCuda) return -1;
    return rank.index() % std::max(1, FindCudaDevices().device_count);
  }

  /// The sampler of this rank's GPU, where it has one of its own: threads of a process that share a
  /// GPU leave it to the first of them.
  static std::unique_ptr<PowerSampler> OpenPower(Rank& rank) {
    const int gpu = GpuOf(rank);
    if (gpu < 0 || (rank.in_process() && rank.index() != gpu)) return nullptr;
    PowerSampler::Opened opened = OpenPowerSampler(gpu);
    if (opened.sampler == nullptr) LogWarning("no power is measured: {}", opened.reason);
    return std::move(opened.sampler);
  }

  void GatherPower() {
    constexpr double kUnit = 1e-3;  // ranks exchange whole numbers
    std::vector<int64_t> mine(5, 0);
    if (power_ != nullptr) {
      const PowerReading reading = power_->Stop();
      const auto whole = [](double value) { return std::llround(value / kUnit); };
      mine = {1, whole(reading.energy_j), whole(reading.power_w.mean),
              whole(reading.sm_clock_mhz.mean), whole(reading.temperature_c.max)};
    }
    const std::vector<int64_t> all = rank_.Gather(mine);
    for (size_t begin = 0; begin < all.size(); begin += mine.size()) {
      if (all[begin] == 0) continue;
      const auto value = [&](size_t i) { return kUnit * static_cast<double>(all[begin + i]); };
      measured_.power.push_back({.energy_j = value(1),
                                 .watts = value(2),
                                 .clock_mhz = value(3),
                                 .temperature_c = value(4)});
    }
  }

  /// By the probe's readings beside the steps of this visit.
  void FindSlowRanks() {
    constexpr double kUnit = 1e-9;  // ranks exchange whole numbers
    const std::vector<int64_t> mine = {std::llround(probe_.TakeOwnSeconds() / kUnit)};
    const std::vector<int64_t> all = rank_.Gather(mine);
    measured_.stragglers = FindStragglers(std::vector<double>(all.begin(), all.end()));
    if (measured_.stragglers.empty()) return;
    std::array<int64_t, 1 + kHostWords> place{GpuOf(rank_)};
    const std::string host = HostName();
    std::memcpy(&place[1], host.data(), std::min(host.size(), kHostWords * sizeof(int64_t) - 1));
    const std::vector<int64_t> places = rank_.Gather(place);
    for (Straggler& each : measured_.stragglers) {
      const int64_t* of_rank = &places[static_cast<size_t>(each.rank) * place.size()];
      each.gpu = of_rank[0];
      each.host = reinterpret_cast<const char*>(&of_rank[1]);
    }
  }

  void GatherMemory() {
    const MemoryTracker& memory = rank_.device().memory();
    std::vector<int64_t> mine = {memory.peak_total()};
    const BytesByTag& by_tag = memory.by_tag_at_peak();
    mine.insert(mine.end(), by_tag.begin(), by_tag.end());
    const std::vector<int64_t> all = rank_.Gather(mine);
    for (size_t begin = 0; begin < all.size(); begin += mine.size()) {
      Measured::RankMemory& each = measured_.memory.emplace_back();
      each.peak = all[begin];
      std::copy_n(all.begin() + static_cast<std::ptrdiff_t>(begin) + 1, each.by_tag.size(),
                  each.by_tag.begin());
    }
  }

  const RunConfig& run_;
  const MeasureOptions& options_;
  SamplePrefetcher samples_;
  Rank& rank_;
  std::unique_ptr<PowerSampler> power_;  // nullptr: not known
  Trainer trainer_;
  Probe probe_;
  std::optional<OtherWork> other_work_;  // where it can be told
  Measured measured_;                    // of this visit
  std::vector<double> losses_;           // of the run's first steps
  int64_t visits_ = 0;
  int64_t step_ = 0;
};

Visitor::Visitor(const RunConfig& run, const MeasureOptions& options, const TokenSource& source,
                 Rank& rank)
    : loop_(std::make_unique<Loop>(run, options, source, rank)) {}

Visitor::~Visitor() = default;

Measurement Visitor::Visit() { return loop_->Visit(); }

RunConfig WithLength(RunConfig run) {
  if (run.steps == 0) run.steps = kAnyLength;
  return run;
}

Measurement Measure(const RunConfig& run, const MeasureOptions& options) {
  TRIMTAB_ASSERT(options.steps >= 1 && options.max_steps >= options.steps && options.warmup >= 0,
                 "measure {} to {} steps after {}", options.steps, options.max_steps,
                 options.warmup);
  RequireLegal(run);
  const RunConfig whole = WithLength(run);
  const std::unique_ptr<TokenSource> source = OpenTokenSource(whole);
  Measurement result;
  RunRanks(whole, [&](Rank& rank) {
    Measurement mine = Visitor(whole, options, *source, rank).Visit();
    if (rank.speaks()) result = std::move(mine);
  });
  return result;
}

}  // namespace trimtab
