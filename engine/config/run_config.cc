#include "engine/config/run_config.h"

#include <array>
#include <limits>
#include <nlohmann/json.hpp>

#include "engine/base/error.h"
#include "engine/base/nearest_name.h"
#include "engine/config/model_limits.h"
#include "engine/config/model_presets.h"
#include "engine/config/strict_json.h"

namespace trimtab {
namespace {

constexpr int64_t kSchemaVersion = 1;
constexpr int64_t kMaxSteps = int64_t{1} << 40;
constexpr int64_t kMaxThreads = 1024;
constexpr int64_t kMaxFp8History = 1024;
constexpr double kMaxLossScale = 1ull << 32;
const std::array<std::string, 2> kDevices = {"cpu", "cuda"};
const std::array<std::string, 2> kFp8Scalings = {"delayed", "current"};

OptimizerConfig OptimizerConfigFromJson(const nlohmann::json& json, const std::string& where) {
  StrictObject object(json, where);
  OptimizerConfig optimizer;
  double rate = optimizer.learning_rate;
  object.Number("learning_rate", rate, 0.0, 1e3);
  optimizer.ScaleTo(rate);
  object.Number("min_learning_rate", optimizer.min_learning_rate, 0.0, 1e3);
  object.Number("beta1", optimizer.beta1, 0.0, 0.999999);
  object.Number("beta2", optimizer.beta2, 0.0, 0.999999);
  object.Number("epsilon", optimizer.epsilon, 1e-30, 1.0);
  object.Number("weight_decay", optimizer.weight_decay, 0.0, 1e3);
  object.Number("clip_grad", optimizer.clip_grad, 0.0, 1e9);
  object.Integer("warmup_steps", optimizer.warmup_steps, 0, kMaxSteps);
  object.Integer("decay_steps", optimizer.decay_steps, 0, kMaxSteps);
  object.Finish();
  if (optimizer.min_learning_rate > optimizer.learning_rate) {
    throw InputError(
        fmt::format("{}.min_learning_rate: expected at most the learning_rate {}, got {}", where,
                    optimizer.learning_rate, optimizer.min_learning_rate));
  }
  return optimizer;
}

nlohmann::json ToJson(const OptimizerConfig& optimizer) {
  return {{"learning_rate", optimizer.learning_rate},
          {"min_learning_rate", optimizer.min_learning_rate},
          {"beta1", optimizer.beta1},
          {"beta2", optimizer.beta2},
          {"epsilon", optimizer.epsilon},
          {"weight_decay", optimizer.weight_decay},
          {"clip_grad", optimizer.clip_grad},
          {"warmup_steps", optimizer.warmup_steps},
          {"decay_steps", optimizer.decay_steps}};
}

Fp8Config Fp8ConfigFromJson(const nlohmann::json& json, const std::string& where) {
  StrictObject object(json, where);
  Fp8Config fp8;
  object.Choice("scaling", fp8.scaling, kFp8Scalings);
  object.Integer("history", fp8.history, 1, kMaxFp8History);
  if (const nlohmann::json* layers = object.Find("bf16_layers")) {
    if (!layers->is_array()) {
      throw InputError(fmt::format("{}: expected an array of layer names, got {}",
                                   object.Where("bf16_layers"), DescribeJson(*layers)));
    }
    for (const nlohmann::json& layer : *layers) {
      if (!layer.is_string()) {
        throw InputError(fmt::format("{}[{}]: expected the name of a layer, got {}",
                                     object.Where("bf16_layers"), fp8.bf16_layers.size(),
                                     DescribeJson(layer)));
      }
      fp8.bf16_layers.push_back(layer.get<std::string>());
    }
  }
  object.Boolean("fast_gradients", fp8.fast_gradients);
  object.Finish();
  return fp8;
}

LossScaleConfig LossScaleConfigFromJson(const nlohmann::json& json, const std::string& where) {
  StrictObject object(json, where);
  LossScaleConfig scale;
  object.Number("initial", scale.initial, 1.0, kMaxLossScale);
  object.Number("minimum", scale.minimum, 1.0, kMaxLossScale);
  object.Integer("growth_interval", scale.growth_interval, 1, kMaxSteps);
  object.Finish();
  return scale;
}

/// The model of a run: an object, or the name of a preset.
ModelConfig RunModelFromJson(const nlohmann::json& json, const std::string& where) {
  if (!json.is_string()) return ModelConfigFromJson(json, where);
  const std::string name = json.get<std::string>();
  for (const ModelConfig& preset : ModelPresets()) {
    if (preset.name == name) return preset;
  }
  throw InputError(fmt::format("{}: expected an object or the name of a preset, got {}{}", where,
                               DescribeJson(json), SuggestName(name, ModelPresetNames())));
}

}  // namespace

void OptimizerConfig::ScaleTo(double rate) {
  if (learning_rate > 0) {
    // Rounded, so that a peak of 1e-3 has a minimum of 1e-4 whichever peak it was scaled from.
    min_learning_rate =
        std::stod(fmt::format("{:.15g}", min_learning_rate * (rate / learning_rate)));
  }
  learning_rate = rate;
}

RunConfig RunConfigFromJson(const nlohmann::json& json, const std::string& where) {
  constexpr int64_t kMaxInt = std::numeric_limits<int64_t>::max();
  StrictObject object(json, where);
  RunConfig run;
  int64_t version = kSchemaVersion;
  object.Integer("schema_version", version, kSchemaVersion, kSchemaVersion);
  run.model = RunModelFromJson(*object.Find("model", Need::kRequired), object.Where("model"));
  if (const nlohmann::json* layout = object.Find("layout")) {
    run.layout = ParallelConfigFromJson(*layout, object.Where("layout"));
  }
  if (const nlohmann::json* optimizer = object.Find("optimizer")) {
    run.optimizer = OptimizerConfigFromJson(*optimizer, object.Where("optimizer"));
  }
  if (const nlohmann::json* fp8 = object.Find("fp8")) {
    run.fp8 = Fp8ConfigFromJson(*fp8, object.Where("fp8"));
  }
  if (const nlohmann::json* scale = object.Find("loss_scale")) {
    run.loss_scale = LossScaleConfigFromJson(*scale, object.Where("loss_scale"));
  }
  if (const nlohmann::json* routing = object.Find("routing")) {
    run.routing = RoutingConfigFromJson(*routing, object.Where("routing"));
  }
  if (const nlohmann::json* packing = object.Find("packing")) {
    run.packing = PackingConfigFromJson(*packing, object.Where("packing"));
  }
  object.Boolean("deterministic", run.deterministic);
  object.Choice("device", run.device, kDevices);
  object.Integer("global_batch", run.global_batch, 1, kMaxBatch, Need::kRequired);
  object.Integer("sequence_length", run.sequence_length, 1, kMaxSequence, Need::kRequired);
  object.Integer("steps", run.steps, 0, kMaxSteps);
  object.Unsigned("seed", run.seed);
  object.Integer("threads_per_rank", run.threads_per_rank, 0, kMaxThreads);
  object.Integer("memory_per_rank_bytes", run.memory_per_rank_bytes, 0, kMaxInt);
  object.Text("data", run.data);
  object.Finish();
  return run;
}

nlohmann::json ToJson(const RunConfig& run) {
  return {{"schema_version", kSchemaVersion},
          {"model", ToJson(run.model)},
          {"layout", ToJson(run.layout)},
          {"optimizer", ToJson(run.optimizer)},
          {"fp8",
           {{"scaling", run.fp8.scaling},
            {"history", run.fp8.history},
            {"bf16_layers", run.fp8.bf16_layers},
            {"fast_gradients", run.fp8.fast_gradients}}},
          {"loss_scale",
           {{"initial", run.loss_scale.initial},
            {"minimum", run.loss_scale.minimum},
            {"growth_interval", run.loss_scale.growth_interval}}},
          {"routing", ToJson(run.routing)},
          {"packing", ToJson(run.packing)},
          {"deterministic", run.deterministic},
          {"device", run.device},
          {"global_batch", run.global_batch},
          {"sequence_length", run.sequence_length},
          {"steps", run.steps},
          {"seed", run.seed},
          {"threads_per_rank", run.threads_per_rank},
          {"memory_per_rank_bytes", run.memory_per_rank_bytes},
          {"data", run.data}};
}

RunConfig LoadRunConfig(const std::string& path) {
  const nlohmann::json json = ReadJsonFile(path);
  const std::string where = path + ": $";
  if (!json.is_object() || !json.contains("recommended")) return RunConfigFromJson(json, where);
  // A report holds much besides the run; only the way to it is read here.
  StrictObject report(json, where);
  StrictObject recommended(*report.Find("recommended"), report.Where("recommended"));
  return RunConfigFromJson(*recommended.Find("run", Need::kRequired), recommended.Where("run"));
}

}  // namespace trimtab
