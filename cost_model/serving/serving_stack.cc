#include "cost_model/serving/serving_stack.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "cost_model/hardware/quantity_json.h"
#include "cost_model/serving/builtin_rates.h"
#include "engine/base/error.h"
#include "engine/config/json/strict_json.h"

namespace trimtab {
namespace {

constexpr int64_t kSchemaVersion = 1;

const std::vector<std::string>& PolicyNames() {
  static const std::vector<std::string> names = {"chunked", "whole", "alone"};
  return names;
}

/// Numbers at their priors.
template <typename T>
T AtPriors(const std::vector<ServingNumber<T>>& numbers) {
  T result;
  for (const ServingNumber<T>& number : numbers) {
    result.*number.member = {.value = number.prior,
                             .origin = Origin::kModelled,
                             .source = "what is usual (README.md)",
                             .prior = number.prior};
  }
  return result;
}

template <typename T>
void ReadNumbers(const std::vector<ServingNumber<T>>& numbers, StrictObject& object, T& result) {
  for (const ServingNumber<T>& number : numbers) {
    const nlohmann::json* json = object.Find(number.key);
    if (json == nullptr) continue;
    Quantity& value = result.*number.member;
    value = QuantityFromJson(*json, object.Where(number.key));
    if (value.value < number.least || value.value > number.most) {
      object.Refuse(number.key, fmt::format("a value from {} to {}", number.least, number.most));
    }
  }
}

void ReadVersion(StrictObject& object) {
  int64_t version = 0;
  object.Integer("schema_version", version, kSchemaVersion, kSchemaVersion, Need::kRequired);
}

template <typename T, typename Read>
std::vector<T> ReadAll(std::span<const EmbeddedJson> texts, const Read& read) {
  std::vector<T> all;
  for (const EmbeddedJson& each : texts) {
    const std::string where = std::string(each.name) + " (built in)";
    all.push_back(read(ParseJsonText(each.json, where), where + ": $"));
  }
  return all;
}

}  // namespace

std::string_view Name(PromptPolicy policy) { return PolicyNames()[static_cast<size_t>(policy)]; }

const std::vector<ServingNumber<ServingGpu>>& ServingGpuNumbers() {
  static const std::vector<ServingNumber<ServingGpu>> numbers = {
      {"weight_bandwidth", &ServingGpu::weight_bandwidth, 0.83, 0.11, 0.5, 0.93},
      {"kv_bandwidth", &ServingGpu::kv_bandwidth, 0.85, 0.14, 0.4, 0.93},
      {"other_bandwidth", &ServingGpu::other_bandwidth, 0.7, 0.21, 0.3, 0.93},
      {"weight_only", &ServingGpu::weight_only, 0.7, 0.35, 0.3, 1},
      {"compute_16", &ServingGpu::compute_16, 0.75, 0.11, 0.5, 0.8},
      {"compute_8", &ServingGpu::compute_8, 0.55, 0.21, 0.3, 0.75},
      {"compute_4", &ServingGpu::compute_4, 0.5, 0.21, 0.25, 0.75},
      {"attention", &ServingGpu::attention, 0.6, 0.21, 0.3, 0.75},
      {"link", &ServingGpu::link, 0.55, 0.35, 0.2, 0.98},
      {"message_s", &ServingGpu::message_s, 4e-6, 0.28, 2e-6, 1e-5},
      {"expert_bandwidth", &ServingGpu::expert_bandwidth, 0.83, 0.21, 0.3, 0.93},
      {"expert_bandwidth_widened", &ServingGpu::expert_bandwidth_widened, 0.58, 0.3, 0.15, 0.93},
      {"expert_compute", &ServingGpu::expert_compute, 0.2, 0.42, 0.06, 0.6},
      {"expert_compute_4", &ServingGpu::expert_compute_4, 0.2, 0.42, 0.06, 0.6},
      {"expert_compute_widened", &ServingGpu::expert_compute_widened, 0.2, 0.42, 0.06, 0.6},
      {"expert_overhead_8", &ServingGpu::expert_overhead_8, 1, 0.28, 0.1, 8},
      {"expert_overhead_4", &ServingGpu::expert_overhead_4, 1, 0.28, 0.05, 8},
      {"expert_overhead_widened", &ServingGpu::expert_overhead_widened, 1, 0.28, 0.1, 8},
  };
  return numbers;
}

const std::vector<ServingNumber<ServingEngine>>& ServingEngineNumbers() {
  static const std::vector<ServingNumber<ServingEngine>> numbers = {
      {"memory_share", &ServingEngine::memory_share, 0.9, 0, 0.5, 1},
      {"memory_bytes", &ServingEngine::memory_bytes, 5e9, 0, 0, 3e10},
      {"windowed_room", &ServingEngine::windowed_room, 1, 0, 0.1, 1},
      {"gap_s", &ServingEngine::gap_s, 2.5e-6, 0.42, 5e-7, 5e-5},
      {"expert_layer_s", &ServingEngine::expert_layer_s, 2e-5, 0.7, 2e-6, 1.5e-4},
      {"quantise_s", &ServingEngine::quantise_s, 3e-6, 0.42, 1e-6, 1e-5},
      {"host_s", &ServingEngine::host_s, 2.5e-4, 0.56, 1e-4, 2e-3},
      {"sequence_s", &ServingEngine::sequence_s, 2e-5, 0.7, 2e-6, 6e-5},
      {"prompt_layer_s", &ServingEngine::prompt_layer_s, 3.5e-4, 0.56, 5e-5, 6.5e-4},
      {"compute", &ServingEngine::compute, 1, 0.17, 0.6, 1.6},
      {"bandwidth", &ServingEngine::bandwidth, 1, 0.07, 0.7, 1.2},
      {"link", &ServingEngine::link, 1, 0.35, 0.4, 2},
      {"expert_bandwidth", &ServingEngine::expert_bandwidth, 1, 0.28, 0.4, 1.6},
      {"expert_compute", &ServingEngine::expert_compute, 1, 0.28, 0.3, 3},
  };
  return numbers;
}

ServingGpu ServingGpuFromJson(const nlohmann::json& json, const std::string& where) {
  ServingGpu gpu = AtPriors(ServingGpuNumbers());
  StrictObject object(json, where);
  ReadVersion(object);
  object.Text("generation", gpu.generation, Need::kRequired);
  ReadNumbers(ServingGpuNumbers(), object, gpu);
  object.Finish();
  return gpu;
}

ServingEngine ServingEngineFromJson(const nlohmann::json& json, const std::string& where) {
  ServingEngine engine = AtPriors(ServingEngineNumbers());
  StrictObject object(json, where);
  ReadVersion(object);
  object.Text("name", engine.name, Need::kRequired);
  object.Text("engine", engine.engine, Need::kRequired);
  if (const nlohmann::json* versions = object.Find("versions")) {
    engine.versions = StringsFromJson(*versions, object.Where("versions"));
  }
  object.Text("description", engine.description, Need::kRequired);
  std::string policy;
  object.Choice("policy", policy, PolicyNames(), Need::kRequired);
  const auto found = std::find(PolicyNames().begin(), PolicyNames().end(), policy);
  engine.policy = static_cast<PromptPolicy>(found - PolicyNames().begin());
  object.Integer("tokens_per_step", engine.tokens_per_step, 1, 1 << 24, Need::kRequired);
  object.Integer("max_sequences", engine.max_sequences, 1, 1 << 24, Need::kRequired);
  object.Boolean("reserves_output", engine.reserves_output);
  object.Boolean("widens_weights", engine.widens_weights);
  object.Boolean("share_of_free", engine.share_of_free);
  object.Boolean("launches_each_op", engine.launches_each_op);
  ReadNumbers(ServingEngineNumbers(), object, engine);
  object.Finish();
  return engine;
}

const std::vector<ServingGpu>& BuiltinServingGpus() {
  static const std::vector<ServingGpu> all =
      ReadAll<ServingGpu>(ServingGpuFiles(), ServingGpuFromJson);
  return all;
}

const std::vector<ServingEngine>& BuiltinServingEngines() {
  static const std::vector<ServingEngine> all =
      ReadAll<ServingEngine>(ServingEngineFiles(), ServingEngineFromJson);
  return all;
}

ServingGpu ServingGpuOf(const std::string& generation) {
  for (const ServingGpu& each : BuiltinServingGpus()) {
    if (each.generation == generation) return each;
  }
  ServingGpu gpu = AtPriors(ServingGpuNumbers());
  gpu.generation = generation;
  return gpu;
}

const ServingEngine* ServingEngineOf(const std::string& engine, const std::string& version) {
  const ServingEngine* best = nullptr;
  size_t longest = 0;
  for (const ServingEngine& each : BuiltinServingEngines()) {
    if (each.engine != engine) continue;
    if (each.versions.empty() && best == nullptr) best = &each;
    for (const std::string& beginning : each.versions) {
      if (!version.starts_with(beginning) || beginning.size() <= longest) continue;
      best = &each;
      longest = beginning.size();
    }
  }
  return best;
}

}  // namespace trimtab
