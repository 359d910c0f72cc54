#include "cost_model/serving_simulator.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <queue>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/units.h"
#include "engine/data/mix.h"
#include "engine/infer/draft_model.h"

namespace trimtab {
namespace {

/// Ids of tokens: so few that logits cost nothing, so many that no two blocks of random ones agree.
constexpr int64_t kVocabulary = 4;

class VirtualClock final : public Clock {
 public:
  double Now() const override { return now_s_; }
  void MoveTo(double now_s) { now_s_ = std::max(now_s_, now_s); }
  void MoveBy(double seconds) { now_s_ += seconds; }

 private:
  double now_s_ = 0;
};

/// Takes the time of a step, and chooses the first token always.
class PricedRunner final : public StepRunner {
 public:
  PricedRunner(const StepSeconds& seconds, VirtualClock& clock)
      : seconds_(seconds), clock_(clock) {}

  std::vector<float> Run(const StepPlan& plan) override {
    Take(plan);
    return std::vector<float>(static_cast<size_t>(plan.logit_rows() * kVocabulary));
  }
  /// The time alone.
  void Take(const StepPlan& plan) {
    const double seconds = seconds_(plan);
    TRIMTAB_ASSERT(seconds >= 0, "a step of {} s", seconds);
    clock_.MoveBy(seconds);
    busy_s_ += seconds;
    most_rows_ = std::max(most_rows_, plan.rows());
  }
  int64_t vocab_size() const override { return kVocabulary; }
  double busy_s() const { return busy_s_; }
  int64_t most_rows() const { return most_rows_; }

 private:
  const StepSeconds& seconds_;
  VirtualClock& clock_;
  double busy_s_ = 0;
  int64_t most_rows_ = 0;
};

/// With room for the answer. Without a prefix cache nobody looks at what the tokens are.
std::vector<int32_t> PromptOf(size_t index, const LoadRequest& request, bool prefix_cache) {
  std::vector<int32_t> prompt;
  prompt.reserve(static_cast<size_t>(request.prompt_tokens + request.output_tokens));
  prompt.resize(static_cast<size_t>(request.prompt_tokens));
  if (!prefix_cache) return prompt;
  const uint64_t own = MixBits(index);
  const auto shared = static_cast<size_t>(request.shared_tokens);
  for (size_t i = 0; i < prompt.size(); ++i) {
    prompt[i] = static_cast<int32_t>(MixBits((i < shared ? ~uint64_t{0} : own) + i) % kVocabulary);
  }
  return prompt;
}

/// When the next request is sent, whose number is the count of those before it.
class Arrivals {
 public:
  Arrivals(const std::vector<LoadRequest>& requests, int64_t concurrency)
      : requests_(requests), closed_(concurrency > 0) {
    for (int64_t i = 0; i < concurrency; ++i) free_s_.push(0);
  }

  bool done() const { return next_ == requests_.size(); }
  /// Infinity while every client waits.
  double next_s() const {
    if (done()) return std::numeric_limits<double>::infinity();
    if (!closed_) return requests_[next_].at_s;
    return free_s_.empty() ? std::numeric_limits<double>::infinity() : free_s_.top();
  }
  size_t Take() {
    if (closed_) free_s_.pop();
    return next_++;
  }
  void Answered(double now_s) {
    if (closed_) free_s_.push(now_s + kClientTurn);
  }

 private:
  const std::vector<LoadRequest>& requests_;
  bool closed_;
  size_t next_ = 0;
  std::priority_queue<double, std::vector<double>, std::greater<>> free_s_;  // clients
};

/// The draft model that `options` ask for, over the clock; null without.
std::unique_ptr<DraftModel> DraftOf(const BatcherOptions& options, PricedRunner& runner) {
  if (options.draft_tokens == 0) return nullptr;
  const EngineLimits& limits = options.limits;
  return std::make_unique<DraftModel>(DraftLimits{.sequences = limits.sequences,
                                                  .sequence_length = limits.sequence_length,
                                                  .block_size = options.block_size,
                                                  .tokens_per_step = limits.tokens_per_step},
                                      kVocabulary, runner);
}

BatcherOptions WithDraft(BatcherOptions options, Proposer* draft) {
  options.draft = draft;
  return options;
}

class Simulation {
 public:
  Simulation(const BatcherOptions& options, const std::vector<LoadRequest>& requests,
             int64_t concurrency, const StepSeconds& seconds, const SimulationWatch& watch,
             const StepSeconds& draft_seconds)
      : requests_(requests),
        watch_(watch),
        prefix_cache_(options.prefix_cache),
        runner_(seconds, clock_),
        draft_runner_(draft_seconds, clock_),
        draft_(DraftOf(options, draft_runner_)),
        batcher_(WithDraft(options, draft_.get()), runner_, clock_),
        arrivals_(requests, concurrency) {
    result_.outcomes.resize(requests.size());
  }

  SimulatedServing Run() {
    while (result_.ended) {
      TakeRequests();
      if (!batcher_.HasWork()) {
        if (arrivals_.done()) break;
        clock_.MoveTo(arrivals_.next_s());
        continue;
      }
      result_.most_waiting = std::max(result_.most_waiting, batcher_.metrics().waiting);
      if (!TakeQuietSteps()) TakeStep();
      const EngineMetrics now = batcher_.metrics();
      result_.most_running = std::max(result_.most_running, now.running);
      result_.most_blocks = std::max(result_.most_blocks, now.used_blocks);
      Look();
    }
    result_.metrics = batcher_.metrics();
    result_.draft_s = draft_runner_.busy_s();
    result_.busy_s = runner_.busy_s() + result_.draft_s;
    result_.most_rows = std::max(runner_.most_rows(), draft_runner_.most_rows());
    return std::move(result_);
  }

 private:
  LoadOutcome& OutcomeOf(RequestId id) {
    return result_.outcomes[request_of_[static_cast<size_t>(id)]];
  }

  void TakeRequests() {
    while (arrivals_.next_s() <= clock_.Now()) {
      const double sent_s = arrivals_.next_s();
      const size_t i = arrivals_.Take();
      LoadOutcome& outcome = result_.outcomes[i];
      outcome.sent_s = sent_s;
      outcome.prompt_tokens = requests_[i].prompt_tokens;
      const auto taken = batcher_.AddRequest({.prompt = PromptOf(i, requests_[i], prefix_cache_),
                                              .max_tokens = requests_[i].output_tokens,
                                              .sampling = {.seed = requests_[i].seed}});
      if (const auto* refusal = std::get_if<Refusal>(&taken)) {
        outcome.failure = refusal->reason;
        arrivals_.Answered(clock_.Now());
      } else {
        outcome.arrivals_s.reserve(static_cast<size_t>(requests_[i].output_tokens));
        request_of_.push_back(i);
      }
    }
  }

  void TakeStep() {
    for (const RequestUpdate& update : batcher_.Step()) {
      LoadOutcome& outcome = OutcomeOf(update.id);
      events_ += outcome.arrivals_s.empty() ? 1 : 0;
      outcome.arrivals_s.push_back(clock_.Now());
      outcome.tokens += std::ssize(update.tokens);
      if (update.finish == FinishReason::kNone) continue;
      ++events_;
      arrivals_.Answered(clock_.Now());
    }
  }

  static void Plan(PlannedSequence& planned, int64_t rows, int64_t position, int64_t logits) {
    planned.tokens.resize(static_cast<size_t>(rows));
    planned.first_position = position;
    planned.logits = logits;
  }

  /// Steps that the batcher need not plan, until a request comes. False when the next one is none.
  bool TakeQuietSteps() {
    const QuietSteps quiet = batcher_.ComingQuietSteps();
    if (quiet.steps == 0) return false;
    const size_t decoding = quiet.sequences.size();
    quiet_plan_.sequences.resize(decoding + (quiet.prompt_rows > 0 ? 1 : 0));
    quiet_outcomes_.resize(decoding);
    for (size_t i = 0; i < decoding; ++i) {
      const QuietSteps::Sequence& each = quiet.sequences[i];
      Plan(quiet_plan_.sequences[i], 1, each.position, 1);
      quiet_outcomes_[i] = &OutcomeOf(each.id);
    }
    if (quiet.prompt_rows > 0) {
      Plan(quiet_plan_.sequences.back(), quiet.prompt_rows, quiet.prompt_position, 0);
    }
    int64_t steps = 0;
    while (steps < quiet.steps && arrivals_.next_s() > clock_.Now()) {
      runner_.Take(quiet_plan_);
      ++steps;
      for (PlannedSequence& each : quiet_plan_.sequences) {
        each.first_position += std::ssize(each.tokens);
      }
      for (LoadOutcome* each : quiet_outcomes_) each->arrivals_s.push_back(clock_.Now());
    }
    for (LoadOutcome* each : quiet_outcomes_) each->tokens += steps;
    batcher_.TakeQuietSteps(steps, /*token=*/0);
    return true;
  }

  void Look() {
    const auto all = 2 * std::ssize(requests_);  // first tokens and ends
    if (watch_ == nullptr || events_ < looked_ + CeilDiv(all, kLooks)) return;
    looked_ = events_;
    result_.ended = watch_(clock_.Now(), result_.outcomes, batcher_.metrics());
  }

  static constexpr int64_t kLooks = 32;

  const std::vector<LoadRequest>& requests_;
  const SimulationWatch& watch_;
  bool prefix_cache_;
  VirtualClock clock_;
  PricedRunner runner_;
  PricedRunner draft_runner_;
  std::unique_ptr<DraftModel> draft_;
  Batcher batcher_;
  Arrivals arrivals_;
  StepPlan quiet_plan_;  // of the last quiet steps; their memory serves the next ones
  std::vector<LoadOutcome*> quiet_outcomes_;
  std::vector<size_t> request_of_ = {0};  // by RequestId, which count from 1
  int64_t events_ = 0;                    // first tokens and ends
  int64_t looked_ = 0;                    // of these, when the watch looked
  SimulatedServing result_;
};

}  // namespace

SimulatedServing SimulateServing(const BatcherOptions& options,
                                 const std::vector<LoadRequest>& requests, int64_t concurrency,
                                 const StepSeconds& seconds, const SimulationWatch& watch,
                                 const StepSeconds& draft_seconds) {
  TRIMTAB_ASSERT(options.lookup_tokens + options.draft_tokens == 0 || options.acceptance,
                 "a simulation of speculation without an acceptance");
  TRIMTAB_ASSERT(options.draft_tokens == 0 || draft_seconds, "a draft model without a price");
  return Simulation(options, requests, concurrency, seconds, watch, draft_seconds).Run();
}

BatcherOptions BatcherOptionsOf(const ServingConfig& config) {
  return {.limits = config.limits,
          .block_size = config.block_size,
          .blocks = config.cache_blocks,
          .prefix_cache = config.prefix_cache,
          .lookup_tokens = config.lookup_tokens,
          .draft_tokens = config.draft.tokens};
}

double PricedSteps::operator()(const StepPlan& plan) {
  steps_.DescribeWork(steps_.RowsOf(plan, going_on_), work_);
  const ServingBreakdown parts = pricer_.Price(work_);
  spent_ += parts;
  return parts.seconds();
}

}  // namespace trimtab
