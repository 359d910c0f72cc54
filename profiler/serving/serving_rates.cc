#include "profiler/serving/serving_rates.h"

#include <filesystem>
#include <span>
#include <utility>

#include "cost_model/serving/serving_fit.h"
#include "engine/base/error.h"
#include "engine/base/io/file.h"
#include "engine/base/log.h"
#include "engine/checkpoint/xxh64.h"
#include "engine/config/json/strict_json.h"
#include "profiler/calibrate/calibrate_serving.h"

namespace trimtab {
namespace {

constexpr double kSeconds = 4;  // of measuring

}  // namespace

std::string ServingRatesKey(const ServingConfig& config) {
  const std::string model = ToJson(config.model).dump();
  return fmt::format("{}-{},{},threads={},weights={},cache={}", config.model.name,
                     Xxh64Hex(std::as_bytes(std::span(model))), ToString(config.layout),
                     config.threads_per_rank, Name(config.weights), Name(config.cache));
}

KeptServingRates::KeptServingRates(std::string path) : path_(std::move(path)) {
  std::error_code ignored;
  if (path_.empty() || !std::filesystem::exists(path_, ignored)) return;
  try {
    nlohmann::json kept = ReadJsonFile(path_);
    if (!kept.is_object()) throw InputError(fmt::format("{}: expected an object", path_));
    for (const auto& [key, rates] : kept.items()) {
      ServingRatesFromJson(rates, fmt::format("{}: $['{}']", path_, key));
    }
    kept_ = std::move(kept);
  } catch (const InputError& error) {
    LogWarning("cached serving rates are unreadable; measuring again: {}", error.what());
  }
}

ServingRates KeptServingRates::Of(const ServingConfig& config) {
  const std::string key = ServingRatesKey(config);
  if (kept_.contains(key)) return ServingRatesFromJson(kept_[key], path_ + ": " + key);
  const ServingCalibration measured = CalibrateServing(config, kSeconds);
  LogInfo("measured how fast this machine serves {}: {} steps, which its rates explain to {:.1f} %",
          key, measured.steps, 100 * measured.error);
  kept_[key] = ToJson(measured.rates);
  if (path_.empty()) return measured.rates;
  std::error_code ignored;
  std::filesystem::create_directories(std::filesystem::path(path_).parent_path(), ignored);
  try {
    AtomicFile file(path_, Writers::kSeveral);
    file.Append(kept_.dump(1) + "\n");
    file.Commit();
  } catch (const StorageError& error) {
    LogWarning("what this machine reaches is not kept: {}", error.what());
  }
  return measured.rates;
}

}  // namespace trimtab
