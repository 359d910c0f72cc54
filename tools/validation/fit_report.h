// `trimtab validate --fit`: what was fitted, and how it does on runs that were held out.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "cost_model/validation/fit.h"

namespace trimtab {

/// `rows`: those that were fitted, to `outcome`.
nlohmann::json FitJson(const FitResult& fit, const std::vector<ValidationRow>& rows,
                       Outcome outcome);
std::string FitText(const FitResult& fit, const std::vector<ValidationRow>& rows, Outcome outcome,
                    bool bold);

}  // namespace trimtab
