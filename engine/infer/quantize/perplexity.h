// How well a model that serves predicts a text: what its weights and cache are stored in shows
// here.
#pragma once

#include <cstdint>
#include <span>

#include "engine/infer/scheduler/step_plan.h"
#include "engine/infer/serving_config.h"

namespace trimtab {

/// The mean over the tokens but the first of each run of `config`.limits.sequence_length of
/// -ln(probability of the token after those before it in the run). Its exponential is the
/// perplexity. `tokens` are at least two. Runs use the first blocks of the cache.
double MeanTokenLoss(const ServingConfig& config, ModelExecutor& runner,
                     std::span<const int32_t> tokens);

}  // namespace trimtab
