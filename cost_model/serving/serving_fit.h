// The rates of an engine on a machine, from steps that it was measured to take there.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "cost_model/serving/serving_price.h"
#include "cost_model/serving/serving_steps.h"

namespace trimtab {

struct MeasuredStep {
  StepRows rows{};
  double seconds = 0;
};

struct ServingRatesFit {
  ServingRates rates{};
  double error = 0;  // mean of |predicted / measured - 1|
};

/// The rates with which `measured` are predicted best, in logarithms, by Gauss-Newton with
/// Levenberg's damping; what they say little about stays near `start`. All numbers of `start` that
/// are 0 stay so.
ServingRatesFit FitServingRates(const ServingSteps& steps,
                                const std::vector<MeasuredStep>& measured,
                                const ServingRates& start);

/// Strict JSON. Throws InputError.
ServingRates ServingRatesFromJson(const nlohmann::json& json, const std::string& where);
nlohmann::json ToJson(const ServingRates& rates);

}  // namespace trimtab
