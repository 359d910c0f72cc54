// Serving trials: a configuration serves a load for real, visit by visit.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "engine/infer/load/workload.h"
#include "engine/infer/serving_config.h"
#include "profiler/trial.h"
#include "profiler/worker.h"

namespace trimtab {

/// A configuration and the load that a visit serves with it.
struct ServingTrial {
  ServingConfig serving{};
  ServiceLoad load{};
  std::optional<double> acceptance{};  // of proposed tokens, whatever the random weights say
};

/// {"serving": {...}, "load": {...}, "acceptance": 0.7}
nlohmann::json ToJson(const ServingTrial& trial);
/// Inverse of ToJson. Throws InputError.
ServingTrial ServingTrialFromJson(const nlohmann::json& json, const std::string& where);

/// A worker that serves: `trimtab bench --config FILE --result FILE`.
TrialJob ServingJob(const ServingTrial& trial, std::string key);

/// Visits to an engine with random weights, on the ranks of this process or of a launcher. Prompts
/// differ between visits, so that no visit finds those of an earlier one in the cache.
Visits ServingVisits(const ServingTrial& trial);

}  // namespace trimtab
