// Objective: what "best" means, and by which figure candidates are ordered.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <utility>

#include "engine/config/run_config.h"
#include "search/space/predictor.h"

namespace trimtab {

/// What "best" means.
enum class Objective {
  kThroughput,  // most tokens per second
  kMemory,      // least peak memory of the fullest rank
  kCost,        // least rank-seconds per token, and with that least energy at the GPUs' own power;
                // on cpu, whose ranks share one machine, as throughput
};
inline constexpr std::array kObjectives = {Objective::kThroughput, Objective::kMemory,
                                           Objective::kCost};
/// "throughput", "memory", "cost".
std::string Name(Objective objective);
/// Throws UsageError for any other name.
Objective ParseObjective(const std::string& text);

/// The figure to minimise, for a step of `run` with these figures: seconds per token, bytes, or
/// rank-seconds per token.
double Score(Objective objective, const RunConfig& run, double tokens_per_s,
             int64_t peak_mem_bytes);

/// What candidates are ordered by, smallest first: the score, then the seconds of a step.
using SortKey = std::pair<double, double>;
SortKey PredictionKey(Objective objective, const RunConfig& run, const Prediction& prediction);

}  // namespace trimtab
