// The last step of both tiers: from the priced parts of a step to a whole estimate.
#pragma once

#include "cost_model/cluster.h"
#include "cost_model/estimate.h"
#include "cost_model/price.h"

namespace trimtab {

/// Half-widths of the interval of predictions for GPUs, relative: what about four fifths of the
/// published runs differ by less than when they are held out, with their family where the stack was
/// fitted, with their source where it was not (README.md).
inline constexpr double kFittedStackHalfWidth = 0.12;
inline constexpr double kOtherStackHalfWidth = 0.20;

/// Fills what follows from the run and the breakdown's parts: overhead, step time and interval,
/// trust, model FLOPs, tokens, ranks, peak rate.
void FinishEstimate(const RunConfig& run, const Cluster& cluster, const Pricer& pricer,
                    Estimate& estimate);

}  // namespace trimtab
