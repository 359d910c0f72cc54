#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "engine/base/error.h"
#include "engine/config/json/strict_json.h"
#include "profiler/measure.h"

namespace trimtab {
namespace {

nlohmann::json PowerToJson(const std::optional<MeasuredPower>& power) {
  if (!power) return nullptr;
  return {{"watts", power->watts},
          {"joules_per_token", power->joules_per_token},
          {"clock_mhz", power->clock_mhz},
          {"temperature_c", power->temperature_c}};
}

/// [[step_s, probe_s, taken], ...]
nlohmann::json BlocksToJson(const std::vector<StepBlock>& blocks) {
  nlohmann::json list = nlohmann::json::array();
  for (const StepBlock& block : blocks) list.push_back({block.step_s, block.probe_s, block.taken});
  return list;
}

nlohmann::json StragglersToJson(const std::vector<Straggler>& stragglers) {
  nlohmann::json list = nlohmann::json::array();
  for (const Straggler& each : stragglers) {
    list.push_back(
        {{"rank", each.rank}, {"host", each.host}, {"gpu", nullptr}, {"times", each.times}});
    if (each.gpu >= 0) list.back()["gpu"] = each.gpu;
  }
  return list;
}

}  // namespace

std::optional<MeasuredPower> TotalPower(std::span<const GpuPower> gpus, double tokens) {
  if (gpus.empty()) return std::nullopt;
  MeasuredPower total;
  double joules = 0;
  for (const GpuPower& each : gpus) {
    joules += each.energy_j;
    total.watts += each.watts;
    total.clock_mhz += each.clock_mhz / static_cast<double>(gpus.size());
    total.temperature_c = std::max(total.temperature_c, each.temperature_c);
  }
  total.joules_per_token = joules / tokens;
  return total;
}

std::string WhyNotNumeric(const Measurement& measurement) {
  for (size_t step = 0; step < measurement.losses.size(); ++step) {
    if (std::isfinite(measurement.losses[step])) continue;
    return fmt::format("the loss of step {} is {}", step + 1, measurement.losses[step]);
  }
  const auto is_time = [](double seconds) { return std::isfinite(seconds) && seconds > 0; };
  if (!is_time(measurement.step_time_s)) {
    return fmt::format("a step took {} s by the clock", measurement.step_time_s);
  }
  for (const StepBlock& block : measurement.blocks) {
    if (!is_time(block.step_s)) return fmt::format("a step took {} s by the clock", block.step_s);
  }
  return "";
}

nlohmann::json ToJson(const Measurement& measurement) {
  const Measurement& m = measurement;
  nlohmann::json json = {
      {"step_time_s", m.step_time_s},
      {"step_time_mad_s", m.step_time_mad_s},
      {"steps_measured", m.steps_measured},
      {"tokens_per_s", m.tokens_per_s},
      {"tokens_per_s_per_gpu", m.tokens_per_s_per_gpu},
      {"model_tflops_per_gpu", m.model_tflops_per_gpu},
      {"mfu", m.mfu},
      {"peak_mem_bytes", m.peak_mem_bytes},
      {"memory_bytes", m.memory_bytes},
      {"breakdown_s", m.breakdown_s},
      {"losses", m.losses},
      {"precision", m.precision},
      {"optimizer_state", m.optimizer_state},
      {"power", PowerToJson(m.power)},
      {"blocks", BlocksToJson(m.blocks)},
      {"stragglers", StragglersToJson(m.stragglers)},
  };
  if (m.service) json["service"] = ToJson(*m.service);
  return json;
}

Measurement MeasurementFromJson(const nlohmann::json& json, const std::string& where) {
  RequireNoNegative(json,
                    {"step_time_s", "step_time_mad_s", "steps_measured", "tokens_per_s",
                     "tokens_per_s_per_gpu", "model_tflops_per_gpu", "mfu", "peak_mem_bytes"},
                    where);
  try {
    Measurement m;
    json.at("step_time_s").get_to(m.step_time_s);
    json.at("step_time_mad_s").get_to(m.step_time_mad_s);
    json.at("steps_measured").get_to(m.steps_measured);
    json.at("tokens_per_s").get_to(m.tokens_per_s);
    json.at("tokens_per_s_per_gpu").get_to(m.tokens_per_s_per_gpu);
    json.at("model_tflops_per_gpu").get_to(m.model_tflops_per_gpu);
    json.at("mfu").get_to(m.mfu);
    json.at("peak_mem_bytes").get_to(m.peak_mem_bytes);
    json.at("memory_bytes").get_to(m.memory_bytes);
    json.at("breakdown_s").get_to(m.breakdown_s);
    json.at("losses").get_to(m.losses);
    // Results of older versions lack what follows.
    m.precision = json.value("precision", "");
    m.optimizer_state = json.value("optimizer_state", "");
    if (json.contains("power") && !json.at("power").is_null()) {
      const nlohmann::json& power = json.at("power");
      m.power.emplace();
      power.at("watts").get_to(m.power->watts);
      power.at("joules_per_token").get_to(m.power->joules_per_token);
      power.at("clock_mhz").get_to(m.power->clock_mhz);
      power.at("temperature_c").get_to(m.power->temperature_c);
    }
    if (json.contains("blocks")) {
      for (const nlohmann::json& block : json.at("blocks")) {
        m.blocks.push_back({block.at(0).get<double>(), block.at(1).get<double>(),
                            block.size() > 2 ? block.at(2).get<double>() : 0});
      }
    }
    if (json.contains("service")) {
      m.service = LoadReportFromJson(json.at("service"), where + ": service");
    }
    for (const nlohmann::json& each : json.value("stragglers", nlohmann::json::array())) {
      const nlohmann::json& gpu = each.at("gpu");
      m.stragglers.push_back({.rank = each.at("rank"),
                              .host = each.at("host"),
                              .gpu = gpu.is_null() ? -1 : gpu.get<int64_t>(),
                              .times = each.at("times")});
    }
    return m;
  } catch (const nlohmann::json::exception& error) {
    throw InputError(fmt::format("{}: not a measurement: {}", where, error.what()));
  }
}

}  // namespace trimtab
