// What the closed form and the dry run must agree in.
#pragma once

#include "cost_model/closed_form/closed_form.h"
#include "cost_model/estimate.h"
#include "cost_model/hardware/cluster.h"
#include "engine/config/run/run_config.h"

namespace trimtab {

/// Where the tiers differ by design.
struct Differences {
  /// The closed form takes its bubble from the schedule's formula, the dry run from what the stages
  /// do; all else is the same if both take the same stage for the slowest.
  bool pipeline = false;
  /// The closed form hides as much of the data-parallel messages as can be hidden at all.
  bool overlap = false;
};

/// Expects the same FLOPs, ops, messages of every kind in every group, and bytes of memory, and
/// nearly the same seconds.
void ExpectSameEstimate(const Estimate& closed, const Estimate& dry, Differences differences);

/// Expects it of each stage of `run`, whose estimator is `estimator`.
void ExpectSameStages(ClosedFormEstimator& estimator, const RunConfig& run, const Cluster& cluster);

}  // namespace trimtab
