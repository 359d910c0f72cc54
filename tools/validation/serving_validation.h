// `trimtab validate` on published serving: predictions beside what others measured.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "cost_model/serving/validation/serving_fit.h"

namespace trimtab {

/// `summary`, `rows` and `skipped_rows` of the command's JSON.
nlohmann::json ServingValidationJson(const ServingCases& taken, const ServingNumbers& numbers);
/// The same as tables for people: by engine, GPU and model.
std::string ServingValidationText(const ServingCases& taken, const ServingNumbers& numbers,
                                  bool bold);

/// What --fit says: the numbers, and the errors of rows that were fitted and held out.
struct ServingFitReport {
  nlohmann::json json;
  std::string text;
};
ServingFitReport ReportServingFit(const ServingCases& taken, bool bold);

}  // namespace trimtab
