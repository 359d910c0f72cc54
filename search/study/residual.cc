#include "search/study/residual.h"

#include <nlohmann/json.hpp>

#include "cost_model/hardware/numerics.h"
#include "engine/base/error.h"

namespace trimtab {

nlohmann::json ToJson(const std::vector<Residual>& residuals) {
  nlohmann::json json = nlohmann::json::array();
  for (const Residual& each : residuals) {
    json.push_back({{"mode", ToString(each.sample.mode)},
                    {"numerics", each.numerics},
                    {"predicted_s", each.sample.predicted_s},
                    {"measured_s", each.sample.measured_s}});
  }
  return json;
}

std::vector<Residual> ResidualsFromJson(const nlohmann::json& json, const std::string& where) {
  std::vector<Residual> residuals;
  try {
    for (const nlohmann::json& each : json) {
      Residual& residual = residuals.emplace_back();
      residual.numerics = each.at("numerics");
      residual.sample.mode = ParseMode(each.at("mode"), where);
      each.at("predicted_s").get_to(residual.sample.predicted_s);
      each.at("measured_s").get_to(residual.sample.measured_s);
      if (residual.sample.predicted_s <= 0 || residual.sample.measured_s <= 0) {
        throw UsageError("a step takes longer than 0 s");
      }
    }
  } catch (const std::exception& error) {
    throw StorageError(fmt::format("{}: not the steps of another study: {}", where, error.what()));
  }
  return residuals;
}

}  // namespace trimtab
