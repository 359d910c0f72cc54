// Correct: what the proved candidates say about those that were not.
#pragma once

#include <vector>

#include "search/study/study.h"

namespace trimtab {

/// Of the measured candidates.
std::vector<Residual> ResidualsOf(const std::vector<CandidateRecord>& candidates);

/// Scales the predictions of unmeasured candidates by what measured ones of the same mode (ranks x
/// threads) and precision took compared to their predictions (cost_model/correction.h), and marks
/// them corrected and calibrated. For modes of which none was measured `seed` stands in: steps of
/// another problem on this machine. What is carried over so is unsure by as much as it corrects.
/// Measured candidates keep the predictions they were measured against, so errors stay those of
/// predictions made beforehand.
void CorrectPredictions(const std::vector<Residual>& seed,
                        std::vector<CandidateRecord>& candidates);

}  // namespace trimtab
