#include <nlohmann/json.hpp>

#include "engine/base/error.h"
#include "profiler/measure.h"

namespace trimtab {

nlohmann::json ToJson(const Measurement& measurement) {
  const Measurement& m = measurement;
  return {
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
  };
}

Measurement MeasurementFromJson(const nlohmann::json& json, const std::string& where) {
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
    return m;
  } catch (const nlohmann::json::exception& error) {
    throw InputError(fmt::format("{}: not a measurement: {}", where, error.what()));
  }
}

}  // namespace trimtab
