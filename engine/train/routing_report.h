// What the routers of a model with experts say of a step.
#pragma once

#include <memory>
#include <vector>

#include "engine/model/gpt_model.h"

namespace trimtab {

/// Of one step, over all layers with experts.
struct RoutingReport {
  double aux_loss = 0;   // sum over layers of the load-balancing loss, coefficient included
  double z_loss = 0;     // likewise of the z-loss
  double imbalance = 0;  // tokens of an expert over the mean of its layer's, at most; 0: no experts
};

/// The report of this rank's pipeline stage, of statistics that are of all data-parallel ranks.
/// `tokens` is how many the step had. Waits for the device.
RoutingReport ReportRouting(const std::vector<std::unique_ptr<GptModel>>& chunks, double tokens);

/// That of all stages; every rank of a pipeline calls it.
RoutingReport OverStages(const RoutingReport& stage, const ParallelContext& parallel,
                         Device& device);

}  // namespace trimtab
