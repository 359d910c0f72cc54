// Residual: how far off a prediction was.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "cost_model/correction.h"

namespace trimtab {

/// A step that was predicted and measured.
struct Residual {
  std::string numerics;  // NumericsOf its candidate
  PredictionSample sample;

  bool operator==(const Residual&) const = default;
};

/// [{"mode": "2x1", "numerics": "fp32", "predicted_s": 0.5, "measured_s": 0.6}, ...]
nlohmann::json ToJson(const std::vector<Residual>& residuals);
/// Throws StorageError naming `where`.
std::vector<Residual> ResidualsFromJson(const nlohmann::json& json, const std::string& where);

}  // namespace trimtab
