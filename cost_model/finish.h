// The last step of both tiers: from the priced parts of a step to a whole estimate.
#pragma once

#include "cost_model/cluster.h"
#include "cost_model/estimate.h"
#include "cost_model/price.h"

namespace trimtab {

/// Fills what follows from the run and the breakdown's parts: overhead, step time and interval,
/// trust, model FLOPs, tokens, ranks, peak rate.
void FinishEstimate(const RunConfig& run, const Cluster& cluster, const Pricer& pricer,
                    Estimate& estimate);

}  // namespace trimtab
