// The simulator of serving: the engine's own scheduler over a virtual clock, which a price moves on
// with every step; or several that share the work, each with a clock. What it admits, cuts,
// preempts and hands over is what the engine will.
#pragma once

#include <functional>
#include <vector>

#include "cost_model/serving/serving_price.h"
#include "cost_model/serving/serving_steps.h"
#include "cost_model/serving/simulated_engine.h"
#include "engine/infer/load/load_report.h"
#include "engine/infer/load/workload.h"
#include "engine/infer/serving_config.h"

namespace trimtab {

/// How often a watch is shown something, at most.
inline constexpr int64_t kLooks = 32;
/// Is shown from time to time what has become of the requests until now; false ends the simulation.
using SimulationWatch = std::function<bool(double now_s, const std::vector<LoadOutcome>& outcomes,
                                           const EngineMetrics& metrics)>;

struct SimulatedServing {
  bool ended = true;                    // false: the watch wanted no more
  std::vector<LoadOutcome> outcomes{};  // of all requests, in their order; from time 0 on
  EngineMetrics metrics{};              // at the end
  double busy_s = 0;                    // of all steps, of the draft model too, and copies
  double draft_s = 0;                   // of these, its own
  double copy_s = 0;                    // likewise, of copying caches
  int64_t most_running = 0;             // sequences at once, of one engine, here and below
  int64_t most_waiting = 0;             // requests
  int64_t most_rows = 0;                // of a step
  int64_t most_blocks = 0;              // of the cache, used
  bool waits_for_places = false;        // a request did, while as many sequences ran as may
  bool waits_for_room = false;          // one did while fewer ran: for blocks, or rows of a step
};

/// Engines that serve a load together: some compute prompts, the others go on with them.
struct SimulatedEngines {
  int64_t prefill = 0;  // 0: one engine does both
  int64_t decode = 1;
};

/// Serves `requests`, in the order in which they come: an open loop by LoadRequest::at_s, or with
/// `concurrency` a closed one, whose clients send their next request kClientTurn after an answer.
/// Prompts have only their shared tokens in common. `options` are those of each engine, without a
/// draft: with draft_tokens the engine's own runs over the same clock. How much of what is proposed
/// stands depends on texts, so options.acceptance says it.
SimulatedServing SimulateServing(const SchedulerOptions& options,
                                 const std::vector<LoadRequest>& requests, int64_t concurrency,
                                 const SimulatedPrices& prices, const SimulationWatch& watch = {},
                                 const SimulatedEngines& engines = {});

/// A client has seen the end of its answer and sent the next request after so long: the next step
/// has begun meanwhile.
inline constexpr double kClientTurn = 1e-4;

/// What a resolved configuration asks of a scheduler, without its draft and its acceptance.
SchedulerOptions SchedulerOptionsOf(const ServingConfig& config);

/// Prices steps, and adds up where the seconds went.
class PricedSteps {
 public:
  /// All must outlive it. `going_on`: as ServingSteps::RowsOf.
  PricedSteps(const ServingSteps& steps, const ServingPricer& pricer, int64_t going_on = 1)
      : steps_(steps), pricer_(pricer), going_on_(going_on) {}

  double operator()(const StepPlan& plan);
  const ServingBreakdown& spent() const { return spent_; }

 private:
  const ServingSteps& steps_;
  const ServingPricer& pricer_;
  int64_t going_on_;
  ServingWork work_{};  // of the last step; its memory serves the next one
  ServingBreakdown spent_;
};

}  // namespace trimtab
