// What this machine reaches when it serves a model: measured when it is first needed, then kept
// beside the machine's profile.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>

#include "cost_model/serving/serving_price.h"
#include "engine/infer/serving_config.h"

namespace trimtab {

/// A model in a layout with precisions and threads, in a word.
std::string ServingRatesKey(const ServingConfig& config);

class KeptServingRates {
 public:
  /// `path`: JSON of rates by key; empty: kept nowhere. A damaged file is not used, which a line
  /// says.
  explicit KeptServingRates(std::string path);

  /// Of this machine, measured now if they are not known. Throws what CalibrateServing throws.
  ServingRates Of(const ServingConfig& config);

 private:
  std::string path_;
  nlohmann::json kept_ = nlohmann::json::object();
};

}  // namespace trimtab
