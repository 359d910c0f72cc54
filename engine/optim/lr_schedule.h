// The learning rate: linear warm-up, then a cosine to the minimum
// (Loshchilov & Hutter, SGDR, arXiv:1608.03983).
#pragma once

#include <cstdint>

#include "engine/config/run_config.h"

namespace trimtab {

/// Learning rate of optimizer step `step` (the first is 0). With decay_steps 0 the decay ends with
/// the run of `total_steps`.
double LearningRate(const OptimizerConfig& config, int64_t step, int64_t total_steps);

}  // namespace trimtab
