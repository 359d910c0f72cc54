#include "cost_model/serving/serving_simulator.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <queue>
#include <span>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/mix.h"
#include "engine/base/units.h"

namespace trimtab {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

/// With room for the answer. `block_size`: of the prefix cache; 0 without, for then nobody looks at
/// what the tokens are. A cache finds whole blocks, and none by chance that requests do not share:
/// from the first block that is not wholly shared on, tokens spell the request's number.
std::vector<int32_t> PromptOf(size_t index, const LoadRequest& request, int64_t block_size) {
  std::vector<int32_t> prompt;
  prompt.reserve(static_cast<size_t>(request.prompt_tokens + request.output_tokens));
  prompt.resize(static_cast<size_t>(request.prompt_tokens));
  if (block_size == 0) return prompt;
  const auto shared = static_cast<size_t>(request.shared_tokens / block_size * block_size);
  for (size_t i = 0; i < shared; ++i) {
    prompt[i] = static_cast<int32_t>(MixBits(i) % kSimulatedVocabulary);
  }
  constexpr int kDigitBits = 4;
  constexpr size_t kDigits = 64 / kDigitBits;
  static_assert(kSimulatedVocabulary == 1 << kDigitBits);
  for (size_t i = shared; i < prompt.size(); ++i) {
    const size_t digit = (i - shared) % kDigits;
    prompt[i] = static_cast<int32_t>((index >> (kDigitBits * digit)) % kSimulatedVocabulary);
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
    if (done()) return kNever;
    if (!closed_) return requests_[next_].at_s;
    return free_s_.empty() ? kNever : free_s_.top();
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

class Simulation {
 public:
  Simulation(const SchedulerOptions& options, const std::vector<LoadRequest>& requests,
             int64_t concurrency, const SimulatedPrices& prices, const SimulationWatch& watch,
             const SimulatedEngines& engines)
      : requests_(requests),
        watch_(watch),
        prefix_block_size_(options.prefix_cache ? options.block_size : 0),
        arrivals_(requests, concurrency) {
    for (int64_t i = 0; i < engines.prefill + engines.decode; ++i) {
      SchedulerOptions own = options;
      own.hands_over = i < engines.prefill;
      if (own.hands_over) own.draft_tokens = 0;
      engines_.push_back(std::make_unique<Serving>(own, prices));
    }
    const std::span<const ServingPtr> all(engines_);
    first_ = engines.prefill > 0 ? all.first(static_cast<size_t>(engines.prefill)) : all;
    second_ = all.subspan(first_.size());
    result_.outcomes.resize(requests.size());
  }

  SimulatedServing Run() {
    while (result_.ended) {
      // What happens next: a request comes, or an engine is done with what it is at.
      double now_s = arrivals_.next_s();
      for (const ServingPtr& each : engines_) {
        if (each->busy) now_s = std::min(now_s, each->engine.clock().Now());
      }
      if (now_s == kNever) break;
      for (const ServingPtr& each : engines_) {
        if (each->busy && each->engine.clock().Now() <= now_s) Finish(*each);
      }
      TakeRequests(now_s);
      for (const ServingPtr& each : engines_) {
        if (each->busy || !each->engine.scheduler().HasWork()) continue;
        each->engine.clock().MoveTo(now_s);
        GoOn(*each);
      }
      Look(now_s);
    }
    for (const ServingPtr& each : engines_) AddWork(each->engine);
    return std::move(result_);
  }

 private:
  /// An engine, and what it is at.
  struct Serving {
    Serving(const SchedulerOptions& options, const SimulatedPrices& prices)
        : engine(options, prices) {}

    SimulatedEngine engine;
    bool busy = false;                     // until its clock's time
    std::vector<RequestUpdate> updates{};  // that are known then
    std::vector<size_t> request_of = {0};  // by RequestId, which count from 1
    int64_t requests = 0;                  // that it has, or that wait for it
  };
  using ServingPtr = std::unique_ptr<Serving>;

  static Serving& Fewest(std::span<const ServingPtr> of) {
    return **std::ranges::min_element(of, {}, [](const auto& each) { return each->requests; });
  }

  LoadOutcome& OutcomeOf(const Serving& serving, RequestId id) {
    return result_.outcomes[serving.request_of[static_cast<size_t>(id)]];
  }

  void TakeRequests(double now_s) {
    while (arrivals_.next_s() <= now_s) {
      const double sent_s = arrivals_.next_s();
      const size_t i = arrivals_.Take();
      LoadOutcome& outcome = result_.outcomes[i];
      outcome.sent_s = sent_s;
      outcome.prompt_tokens = requests_[i].prompt_tokens;
      Serving& serving = Fewest(first_);
      const auto taken = serving.engine.scheduler().AddRequest(
          {.prompt = PromptOf(i, requests_[i], prefix_block_size_),
           .max_tokens = requests_[i].output_tokens,
           .sampling = {.seed = requests_[i].seed}});
      if (const auto* refusal = std::get_if<Refusal>(&taken)) {
        outcome.failure = refusal->reason;
        arrivals_.Answered(now_s);
      } else {
        outcome.arrivals_s.reserve(static_cast<size_t>(requests_[i].output_tokens));
        serving.request_of.push_back(i);
        ++serving.requests;
      }
    }
  }

  /// Tells what an engine has done that is at the end of it.
  void Finish(Serving& serving) {
    serving.busy = false;
    const double now_s = serving.engine.clock().Now();
    for (const RequestUpdate& update : serving.updates) {
      LoadOutcome& outcome = OutcomeOf(serving, update.id);
      events_ += outcome.arrivals_s.empty() ? 1 : 0;
      outcome.arrivals_s.push_back(now_s);
      outcome.tokens += std::ssize(update.tokens);
      if (update.finish == FinishReason::kNone) continue;
      ++events_;
      --serving.requests;
      arrivals_.Answered(now_s);
    }
    serving.updates.clear();
    Scheduler& scheduler = serving.engine.scheduler();
    for (const PinnedBlocks& each : scheduler.TakeReleasable()) {
      engines_[static_cast<size_t>(each.engine)]->engine.scheduler().ReleaseBlocksOf(each.id);
    }
    for (TransferredSequence& each : scheduler.TakePrefilled()) HandOver(serving, std::move(each));
  }

  void HandOver(Serving& serving, TransferredSequence sequence) {
    const auto is_it = [&](const ServingPtr& each) { return each.get() == &serving; };
    sequence.held.engine = std::ranges::find_if(engines_, is_it) - engines_.begin();
    Serving& next = Fewest(second_);
    next.request_of.push_back(serving.request_of[static_cast<size_t>(sequence.held.id)]);
    next.engine.scheduler().AddPrefilled(std::move(sequence));
    --serving.requests;
    ++next.requests;
  }

  /// The next step of an engine that has work, or several of which nobody need know the ends.
  void GoOn(Serving& serving) {
    const EngineMetrics before = serving.engine.scheduler().metrics();
    result_.most_waiting = std::max(result_.most_waiting, before.waiting);
    const SimulatedEngine::Leap leap = serving.engine.SkipSteadySteps(UntilOf(serving));
    for (const SteadySteps::Sequence& each : leap.sequences) {
      LoadOutcome& outcome = OutcomeOf(serving, each.id);
      outcome.arrivals_s.insert(outcome.arrivals_s.end(), leap.ends_s.begin(), leap.ends_s.end());
      outcome.tokens += std::ssize(leap.ends_s);
    }
    if (leap.ends_s.empty()) serving.updates = serving.engine.scheduler().Step();
    serving.busy = true;
    const EngineMetrics now = serving.engine.scheduler().metrics();
    result_.most_running = std::max(result_.most_running, now.running);
    result_.most_blocks = std::max(result_.most_blocks, now.used_blocks);
    if (now.waiting == 0) return;
    // Some of those that worked have left when the step is done, and none of those that wait.
    const int64_t worked = before.running + before.waiting - now.waiting;
    const bool full = worked >= serving.engine.scheduler().limits().sequences;
    (full ? result_.waits_for_places : result_.waits_for_room) = true;
  }

  /// Nobody has anything for the engine before.
  double UntilOf(const Serving& serving) const {
    double until_s = arrivals_.next_s();
    for (const ServingPtr& each : engines_) {
      const bool works = each->busy || each->engine.scheduler().HasWork();
      if (each.get() != &serving && works) until_s = std::min(until_s, each->engine.clock().Now());
    }
    return until_s;
  }

  void AddWork(SimulatedEngine& engine) {
    result_.metrics += engine.scheduler().metrics();
    // Some of those that worked have left when the step is done.
    result_.most_running = std::max(result_.most_running, engine.runner().most_sequences());
    result_.draft_s += engine.draft_runner().busy_s();
    result_.copy_s += engine.runner().copy_s();
    result_.busy_s += engine.runner().busy_s() + engine.draft_runner().busy_s();
    result_.most_rows = std::max(
        {result_.most_rows, engine.runner().most_rows(), engine.draft_runner().most_rows()});
  }

  void Look(double now_s) {
    const auto all = 2 * std::ssize(requests_);  // first tokens and ends
    if (watch_ == nullptr || events_ < looked_ + CeilDiv(all, kLooks)) return;
    looked_ = events_;
    EngineMetrics metrics;
    for (const ServingPtr& each : engines_) metrics += each->engine.scheduler().metrics();
    result_.ended = watch_(now_s, result_.outcomes, metrics);
  }

  const std::vector<LoadRequest>& requests_;
  const SimulationWatch& watch_;
  int64_t prefix_block_size_;  // 0: no prefix cache
  Arrivals arrivals_;
  std::vector<ServingPtr> engines_;
  std::span<const ServingPtr> first_;   // those that requests go to first,
  std::span<const ServingPtr> second_;  // and those that go on with them; or none
  int64_t events_ = 0;                  // first tokens and ends
  int64_t looked_ = 0;                  // of these, when the watch looked
  SimulatedServing result_;
};

}  // namespace

SimulatedServing SimulateServing(const SchedulerOptions& options,
                                 const std::vector<LoadRequest>& requests, int64_t concurrency,
                                 const SimulatedPrices& prices, const SimulationWatch& watch,
                                 const SimulatedEngines& engines) {
  TRIMTAB_ASSERT(options.lookup_tokens + options.draft_tokens == 0 || options.acceptance,
                 "a simulation of speculation without an acceptance");
  TRIMTAB_ASSERT(options.draft_tokens == 0 || prices.draft, "a draft model without a price");
  TRIMTAB_ASSERT(engines.decode == 1 || (engines.prefill > 0 && engines.decode > 0),
                 "{} engines of one kind", engines.decode);
  TRIMTAB_ASSERT(engines.prefill == 0 || prices.copy, "caches move without a price");
  return Simulation(options, requests, concurrency, prices, watch, engines).Run();
}

SchedulerOptions SchedulerOptionsOf(const ServingConfig& config) {
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
