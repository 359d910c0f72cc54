#include "cost_model/serving/simulated_engine.h"

#include <algorithm>

#include "engine/base/error.h"

namespace trimtab {
namespace {

/// The draft model that `options` ask for; null without.
std::unique_ptr<DraftModel> DraftOf(const SchedulerOptions& options, PricedRunner& runner) {
  if (options.draft_tokens == 0) return nullptr;
  const EngineLimits& limits = options.limits;
  return std::make_unique<DraftModel>(DraftLimits{.sequences = limits.sequences,
                                                  .sequence_length = limits.sequence_length,
                                                  .block_size = options.block_size,
                                                  .tokens_per_step = limits.tokens_per_step},
                                      kSimulatedVocabulary, runner);
}

SchedulerOptions WithDraft(SchedulerOptions options, Proposer* draft) {
  options.draft = draft;
  return options;
}

void PlanQuiet(PlannedSequence& planned, int64_t rows, int64_t position, int64_t logits) {
  planned.tokens.resize(static_cast<size_t>(rows));
  planned.first_position = position;
  planned.logits = logits;
}

}  // namespace

void VirtualClock::MoveTo(double now_s) { now_s_ = std::max(now_s_, now_s); }

void VirtualClock::MoveBy(double seconds) {
  TRIMTAB_ASSERT(seconds >= 0, "work of {} s", seconds);
  now_s_ += seconds;
}

std::vector<float> PricedRunner::Run(const StepPlan& plan) {
  Take(plan);
  return std::vector<float>(static_cast<size_t>(plan.logit_rows() * kSimulatedVocabulary));
}

void PricedRunner::Take(const StepPlan& plan) {
  const double seconds = step_(plan);
  clock_.MoveBy(seconds);
  busy_s_ += seconds;
  most_rows_ = std::max(most_rows_, plan.rows());
  most_sequences_ = std::max<int64_t>(most_sequences_, std::ssize(plan.sequences));
}

BlockContents PricedRunner::ReadBlocks(std::span<const int32_t> blocks) {
  TakeCopy(std::ssize(blocks));
  return {};
}

void PricedRunner::WriteBlocks(std::span<const int32_t> blocks, const BlockContents& /*contents*/) {
  TakeCopy(std::ssize(blocks));
}

void PricedRunner::TakeCopy(int64_t blocks) {
  const double seconds = blocks == 0 ? 0 : copy_(blocks);
  clock_.MoveBy(seconds);
  busy_s_ += seconds;
  copy_s_ += seconds;
}

SimulatedEngine::SimulatedEngine(const SchedulerOptions& options, const SimulatedPrices& prices)
    : runner_(prices.step, prices.copy, clock_),
      draft_runner_(prices.draft, prices.copy, clock_),
      draft_(DraftOf(options, draft_runner_)),
      scheduler_(WithDraft(options, draft_.get()), runner_, clock_) {}

SimulatedEngine::Leap SimulatedEngine::SkipSteadySteps(double until_s) {
  SteadySteps quiet = scheduler_.NextSteadySteps();
  if (quiet.steps == 0) return {};
  const size_t decoding = quiet.sequences.size();
  quiet_plan_.sequences.resize(decoding + (quiet.prompt_rows > 0 ? 1 : 0));
  for (size_t i = 0; i < decoding; ++i) {
    PlanQuiet(quiet_plan_.sequences[i], 1, quiet.sequences[i].position, 1);
  }
  if (quiet.prompt_rows > 0) {
    PlanQuiet(quiet_plan_.sequences.back(), quiet.prompt_rows, quiet.prompt_position, 0);
  }
  Leap leap = {.sequences = std::move(quiet.sequences)};
  while (std::ssize(leap.ends_s) < quiet.steps && clock_.Now() < until_s) {
    runner_.Take(quiet_plan_);
    for (PlannedSequence& each : quiet_plan_.sequences) {
      each.first_position += std::ssize(each.tokens);
    }
    leap.ends_s.push_back(clock_.Now());
  }
  scheduler_.SkipSteadySteps(std::ssize(leap.ends_s), /*token=*/0);
  return leap;
}

}  // namespace trimtab
