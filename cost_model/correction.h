// Corrections: what measured steps say about predicted ones.
#pragma once

#include <cstdint>
#include <map>
#include <span>

#include "cost_model/hardware/hardware_profile.h"

namespace trimtab {

/// A step that was predicted and measured.
struct PredictionSample {
  Mode mode;
  double predicted_s = 0;
  double measured_s = 0;

  bool operator==(const PredictionSample&) const = default;
};

/// Per mode, a factor for predicted step times and the relative half-width expected of the result.
struct Correction {
  struct Factor {
    double ratio = 1;       // measured / predicted
    double half_width = 0;  // relative
    int64_t samples = 0;
  };
  std::map<Mode, Factor> factors;
};

/// Median ratio measured / predicted per mode. The half-width is twice the standard error expected
/// of one more prediction: from the deviations so far, and before there are many from what is usual
/// (3 %). One disturbed trial moves little.
/// Samples with a time <= 0 are a programmer's fault.
Correction FitCorrection(std::span<const PredictionSample> samples);

}  // namespace trimtab
