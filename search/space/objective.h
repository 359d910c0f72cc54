// Objective: what "best" means, and by which figure candidates are ordered.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <utility>

#include "engine/config/run/run_config.h"
#include "search/space/predictor.h"

namespace trimtab {

/// The meaning of "best".
enum class Objective {
  kThroughput,  // most tokens per second
  kMemory,      // least peak memory of the fullest rank
  kCost,        // least rank-seconds per token, and with that least energy at the GPUs' own power;
                // on cpu, whose ranks share one machine, as throughput
  kLatency,     // shortest mean time to the end of an answer
  kGpus,        // fewest ranks, then most tokens per second
};
inline constexpr std::array kObjectives = {Objective::kThroughput, Objective::kMemory,
                                           Objective::kCost, Objective::kLatency, Objective::kGpus};
/// "throughput", "memory", "cost", "latency", "gpus".
std::string Name(Objective objective);
/// Throws UsageError for any other name.
Objective ParseObjective(const std::string& text);
/// True if one visit says all that the objective counts: nothing of it is a time.
bool IsExact(Objective objective);

/// Returns the figure to minimise, for a step of `run` with these figures: seconds per token,
/// bytes, or rank-seconds per token.
double Score(Objective objective, const RunConfig& run, double tokens_per_s,
             int64_t peak_mem_bytes);

/// Orders candidates, smallest first: by the score, then by the seconds of a step.
using SortKey = std::pair<double, double>;
SortKey PredictionKey(Objective objective, const RunConfig& run, const Prediction& prediction);

}  // namespace trimtab
