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
const std::array<std::string, 2> kDevices = {"cpu", "cuda"};

OptimizerConfig OptimizerConfigFromJson(const nlohmann::json& json, const std::string& where) {
  StrictObject object(json, where);
  OptimizerConfig optimizer;
  object.Number("learning_rate", optimizer.learning_rate, 0.0, 1e3);
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
