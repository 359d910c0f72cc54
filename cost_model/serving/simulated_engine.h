// One engine of a simulation of serving: a scheduler over a virtual clock, which prices move on.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "engine/infer/scheduler/draft_model.h"
#include "engine/infer/scheduler/scheduler.h"

namespace trimtab {

/// Ids of tokens in simulations: so few that logits cost nothing, so many that four of them tell
/// 65,536 requests apart.
inline constexpr int64_t kSimulatedVocabulary = 16;

/// Seconds of a step, by its rows, positions and outputs.
using StepSeconds = std::function<double(const StepPlan& plan)>;
/// Seconds in which an engine copies so many blocks of its cache to where others get them, or from
/// there.
using CopySeconds = std::function<double(int64_t blocks)>;

/// What work takes. It must outlive the engines.
struct SimulatedPrices {
  StepSeconds step{};
  StepSeconds draft{};  // of a draft model, where there is one
  CopySeconds copy{};   // where sequences move
};

class VirtualClock final : public Clock {
 public:
  double Now() const override { return now_s_; }
  void MoveTo(double now_s);
  void MoveBy(double seconds);

 private:
  double now_s_ = 0;
};

/// Takes the time of a step, and chooses the first token always.
class PricedRunner final : public ModelExecutor {
 public:
  /// Both must outlive it.
  PricedRunner(const StepSeconds& step, const CopySeconds& copy, VirtualClock& clock)
      : step_(step), copy_(copy), clock_(clock) {}

  std::vector<float> Run(const StepPlan& plan) override;
  BlockContents ReadBlocks(std::span<const int32_t> blocks) override;
  void WriteBlocks(std::span<const int32_t> blocks, const BlockContents& contents) override;
  /// The time of a step alone.
  void Take(const StepPlan& plan);
  int64_t vocab_size() const override { return kSimulatedVocabulary; }
  double busy_s() const { return busy_s_; }
  double copy_s() const { return copy_s_; }
  int64_t most_rows() const { return most_rows_; }
  /// At once, in a step.
  int64_t most_sequences() const { return most_sequences_; }

 private:
  void TakeCopy(int64_t blocks);

  const StepSeconds& step_;
  const CopySeconds& copy_;
  VirtualClock& clock_;
  double busy_s_ = 0;  // of steps and copies
  double copy_s_ = 0;  // of copies
  int64_t most_rows_ = 0;
  int64_t most_sequences_ = 0;
};

class SimulatedEngine {
 public:
  /// `options` without a draft: with draft_tokens the engine's own runs over the same clock.
  SimulatedEngine(const SchedulerOptions& options, const SimulatedPrices& prices);

  Scheduler& scheduler() { return scheduler_; }
  const Scheduler& scheduler() const { return scheduler_; }
  VirtualClock& clock() { return clock_; }
  const PricedRunner& runner() const { return runner_; }
  const PricedRunner& draft_runner() const { return draft_runner_; }

  /// Steps that the scheduler need not plan.
  struct Leap {
    std::vector<SteadySteps::Sequence> sequences{};  // whose texts go on by a token in each
    std::vector<double> ends_s{};                    // of the steps; none where there are none
  };
  /// Takes such steps as long as the clock is before `until_s`.
  Leap SkipSteadySteps(double until_s);

 private:
  VirtualClock clock_;
  PricedRunner runner_;
  PricedRunner draft_runner_;
  std::unique_ptr<DraftModel> draft_;
  Scheduler scheduler_;
  StepPlan quiet_plan_;  // of the last quiet steps; its memory serves the next ones
};

}  // namespace trimtab
