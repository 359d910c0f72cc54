// The simulator of serving: the engine's own batcher over a virtual clock, which a price moves on
// with every step. What it admits, cuts and preempts is what the engine will.
#pragma once

#include <functional>
#include <vector>

#include "cost_model/serving_price.h"
#include "cost_model/serving_steps.h"
#include "engine/infer/batcher.h"
#include "engine/infer/load_report.h"
#include "engine/infer/serving_config.h"
#include "engine/infer/workload.h"

namespace trimtab {

/// Seconds of a step, by its rows, positions and outputs.
using StepSeconds = std::function<double(const StepPlan& plan)>;

/// Is shown from time to time what has become of the requests until now; false ends the simulation.
using SimulationWatch = std::function<bool(double now_s, const std::vector<LoadOutcome>& outcomes,
                                           const EngineMetrics& metrics)>;

struct SimulatedServing {
  bool ended = true;                    // false: the watch wanted no more
  std::vector<LoadOutcome> outcomes{};  // of all requests, in their order; from time 0 on
  EngineMetrics metrics{};              // at the end
  double busy_s = 0;                    // of all steps, of the draft model too
  double draft_s = 0;                   // of these, its own
  int64_t most_running = 0;             // sequences at once
  int64_t most_waiting = 0;             // requests
  int64_t most_rows = 0;                // of a step
  int64_t most_blocks = 0;              // of the cache, used
};

/// Serves `requests`, in the order in which they come: an open loop by LoadRequest::at_s, or with
/// `concurrency` a closed one, whose clients send their next request kClientTurn after an answer.
/// Prompts have only their shared tokens in common. `options` without a draft: with draft_tokens
/// the engine's own runs over the same clock, whose steps take `draft_seconds`. How much of what is
/// proposed stands depends on texts, so options.acceptance says it.
SimulatedServing SimulateServing(const BatcherOptions& options,
                                 const std::vector<LoadRequest>& requests, int64_t concurrency,
                                 const StepSeconds& seconds, const SimulationWatch& watch = {},
                                 const StepSeconds& draft_seconds = {});

/// A client has seen the end of its answer and sent the next request after so long: the next step
/// has begun meanwhile.
inline constexpr double kClientTurn = 1e-4;

/// What a resolved configuration asks of a batcher, without its draft and its acceptance.
BatcherOptions BatcherOptionsOf(const ServingConfig& config);

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
