#include "engine/optim/lr_schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <tuple>

namespace trimtab {
namespace {

int64_t DecayEnd(const OptimizerConfig& config, int64_t total_steps) {
  return config.decay_steps > 0 ? config.decay_steps : total_steps;
}

/// What the rates from `step` on depend on: peak, minimum, steps of the warm-up, end of the decay.
/// Schedules that give the same rates have the same.
auto Form(const OptimizerConfig& config, int64_t total_steps, int64_t step) {
  const int64_t end = DecayEnd(config, total_steps);
  const bool constant = config.learning_rate == config.min_learning_rate;
  // The last step of the warm-up already has the peak rate.
  const bool at_peak = constant && step + 1 >= config.warmup_steps;
  if (at_peak || step >= std::max(end, config.warmup_steps)) {
    return std::tuple(config.min_learning_rate, config.min_learning_rate, int64_t{0}, int64_t{0});
  }
  return std::tuple(config.learning_rate, config.min_learning_rate, config.warmup_steps,
                    constant ? 0 : end);
}

}  // namespace

double LearningRate(const OptimizerConfig& config, int64_t step, int64_t total_steps) {
  if (step < config.warmup_steps) {
    return config.learning_rate * static_cast<double>(step + 1) /
           static_cast<double>(config.warmup_steps);
  }
  const int64_t decay_end = DecayEnd(config, total_steps);
  const double span = static_cast<double>(std::max<int64_t>(decay_end - config.warmup_steps, 1));
  const double progress = std::min(static_cast<double>(step - config.warmup_steps) / span, 1.0);
  const double cosine = 0.5 * (1.0 + std::cos(std::numbers::pi * progress));
  return config.min_learning_rate + cosine * (config.learning_rate - config.min_learning_rate);
}

bool SameLearningRates(const OptimizerConfig& a, int64_t a_steps, const OptimizerConfig& b,
                       int64_t b_steps, int64_t step) {
  return Form(a, a_steps, step) == Form(b, b_steps, step);
}

}  // namespace trimtab
