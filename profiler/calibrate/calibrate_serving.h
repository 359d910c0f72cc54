// How fast this machine serves: steps of a model's own engine, measured, and the rates that explain
// them.
#pragma once

#include "cost_model/serving/serving_fit.h"
#include "engine/infer/serving_config.h"

namespace trimtab {

struct ServingCalibration {
  ServingRates rates{};
  double error = 0;  // of the measured steps, as these rates predict them: mean share
  int64_t steps = 0;
};

/// Measures steps of `config` (model, layout, precisions; its limits do not count) with random
/// weights on ranks of this process: single tokens and many, short and long contexts, prompts.
/// Those of one replica are measured, while all others that there are take such steps too. Takes
/// about `seconds`, and what loading takes. Throws what DistributedExecutor throws.
ServingCalibration CalibrateServing(ServingConfig config, double seconds);

}  // namespace trimtab
