// The learning rate: linear warm-up, then a cosine to the minimum
// (Loshchilov & Hutter, SGDR, arXiv:1608.03983).
#pragma once

#include <cstdint>

#include "engine/config/run/run_config.h"

namespace trimtab {

/// Learning rate of optimizer step `step` (the first is 0). With decay_steps 0 the decay ends with
/// the run of `total_steps`.
double LearningRate(const OptimizerConfig& config, int64_t step, int64_t total_steps);

/// Returns true if both schedules give the same rate at every step from `step` on, however long
/// the runs are, which take `a_steps` and `b_steps` in all.
bool SameLearningRates(const OptimizerConfig& a, int64_t a_steps, const OptimizerConfig& b,
                       int64_t b_steps, int64_t step);

}  // namespace trimtab
