#include "engine/optim/lr_schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace trimtab {

double LearningRate(const OptimizerConfig& config, int64_t step, int64_t total_steps) {
  if (step < config.warmup_steps) {
    return config.learning_rate * static_cast<double>(step + 1) /
           static_cast<double>(config.warmup_steps);
  }
  const int64_t decay_end = config.decay_steps > 0 ? config.decay_steps : total_steps;
  const double span = static_cast<double>(std::max<int64_t>(decay_end - config.warmup_steps, 1));
  const double progress = std::min(static_cast<double>(step - config.warmup_steps) / span, 1.0);
  const double cosine = 0.5 * (1.0 + std::cos(std::numbers::pi * progress));
  return config.min_learning_rate + cosine * (config.learning_rate - config.min_learning_rate);
}

}  // namespace trimtab
