// Correct: what the proved candidates say about those that were not.
#pragma once

#include <vector>

#include "search/study.h"

namespace trimtab {

/// Scales the predictions of unmeasured candidates by what measured ones of the same mode (ranks x
/// threads) took compared to their predictions (cost_model/correction.h), and marks them
/// corrected and calibrated. Measured candidates keep the predictions they were measured against,
/// so errors stay those of predictions made beforehand.
void CorrectPredictions(std::vector<CandidateRecord>& candidates);

}  // namespace trimtab
