#include "cost_model/serving_simulator.h"

#include <algorithm>
#include <limits>
#include <map>
#include <queue>
#include <utility>

#include "engine/base/error.h"
#include "engine/data/mix.h"

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
    const double seconds = seconds_(plan);
    TRIMTAB_ASSERT(seconds >= 0, "a step of {} s", seconds);
    clock_.MoveBy(seconds);
    busy_s_ += seconds;
    most_rows_ = std::max(most_rows_, plan.rows());
    return std::vector<float>(static_cast<size_t>(plan.logit_rows() * kVocabulary));
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

std::vector<int32_t> PromptOf(size_t request, int64_t length) {
  std::vector<int32_t> prompt(static_cast<size_t>(length));
  const uint64_t key = MixBits(request);
  for (size_t i = 0; i < prompt.size(); ++i) {
    prompt[i] = static_cast<int32_t>(MixBits(key + i) % kVocabulary);
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

}  // namespace

SimulatedServing SimulateServing(const BatcherOptions& options,
                                 const std::vector<LoadRequest>& requests, int64_t concurrency,
                                 const StepSeconds& seconds) {
  TRIMTAB_ASSERT(options.lookup_tokens == 0, "a simulation with speculation");
  VirtualClock clock;
  PricedRunner runner(seconds, clock);
  Batcher batcher(options, runner, clock);
  Arrivals arrivals(requests, concurrency);
  SimulatedServing result;
  result.outcomes.resize(requests.size());
  std::vector<size_t> request_of = {0};  // by RequestId, which count from 1
  while (true) {
    while (arrivals.next_s() <= clock.Now()) {
      const double sent_s = arrivals.next_s();
      const size_t i = arrivals.Take();
      LoadOutcome& outcome = result.outcomes[i];
      outcome.sent_s = sent_s;
      outcome.prompt_tokens = requests[i].prompt_tokens;
      const auto taken = batcher.AddRequest({.prompt = PromptOf(i, requests[i].prompt_tokens),
                                             .max_tokens = requests[i].output_tokens});
      if (const auto* refusal = std::get_if<Refusal>(&taken)) {
        outcome.failure = refusal->reason;
        arrivals.Answered(clock.Now());
      } else {
        outcome.arrivals_s.reserve(static_cast<size_t>(requests[i].output_tokens));
        request_of.push_back(i);
      }
    }
    if (!batcher.HasWork()) {
      if (arrivals.done()) break;
      clock.MoveTo(arrivals.next_s());
      continue;
    }
    result.most_waiting = std::max(result.most_waiting, batcher.metrics().waiting);
    for (const RequestUpdate& update : batcher.Step()) {
      LoadOutcome& outcome = result.outcomes[request_of[static_cast<size_t>(update.id)]];
      outcome.arrivals_s.push_back(clock.Now());
      outcome.tokens += std::ssize(update.tokens);
      if (update.finish != FinishReason::kNone) arrivals.Answered(clock.Now());
    }
    const EngineMetrics now = batcher.metrics();
    result.most_running = std::max(result.most_running, now.running);
    result.most_blocks = std::max(result.most_blocks, now.used_blocks);
  }
  result.metrics = batcher.metrics();
  result.busy_s = runner.busy_s();
  result.most_rows = runner.most_rows();
  return result;
}

BatcherOptions BatcherOptionsOf(const ServingConfig& config) {
  return {.limits = config.limits,
          .block_size = config.block_size,
          .blocks = config.cache_blocks,
          .prefix_cache = config.prefix_cache,
          .lookup_tokens = config.lookup_tokens};
}

double PricedSteps::operator()(const StepPlan& plan) {
  const ServingBreakdown parts = pricer_.Price(steps_.WorkOf(steps_.RowsOf(plan)));
  spent_ += parts;
  return parts.seconds();
}

}  // namespace trimtab
