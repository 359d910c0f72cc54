// Dynamic loss scaling for fp16 (Micikevicius et al., Mixed Precision Training, arXiv:1710.03740,
// section 3.2): gradients are computed so many times too large that they do not vanish in fp16.
#pragma once

#include <algorithm>
#include <cstdint>

#include "engine/config/layout/precision.h"

namespace trimtab {

class LossScaler {
 public:
  /// A scale that is always 1.
  LossScaler() = default;
  explicit LossScaler(const LossScaleConfig& config)
      : config_(config), enabled_(true), scale_(config.initial) {}

  double scale() const { return scale_; }
  /// Returns how many of the steps told of overflowed, so that nothing was updated.
  int64_t skipped() const { return skipped_; }
  int64_t good_steps() const { return good_steps_; }
  /// Whether a step may overflow: there is a scale, and it can still fall.
  bool CanSkip() const { return enabled_ && scale_ > config_.minimum; }

  /// Learns how a step went: halves the scale on overflow, doubles it after growth_interval good
  /// steps in a row.
  void EndStep(bool overflowed) {
    if (!enabled_) return;
    if (overflowed) {
      scale_ = std::max(config_.minimum, scale_ / 2);
      good_steps_ = 0;
      ++skipped_;
    } else if (++good_steps_ == config_.growth_interval) {
      scale_ = std::min(kLargest, scale_ * 2);
      good_steps_ = 0;
    }
  }

  /// Goes on from a checkpoint.
  void Restore(double scale, int64_t good_steps, int64_t skipped) {
    if (!enabled_) return;
    scale_ = scale;
    good_steps_ = good_steps;
    skipped_ = skipped;
  }

 private:
  static constexpr double kLargest = 1ull << 32;

  LossScaleConfig config_;
  bool enabled_ = false;
  double scale_ = 1;
  int64_t good_steps_ = 0;
  int64_t skipped_ = 0;
};

}  // namespace trimtab
