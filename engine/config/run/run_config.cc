#include "engine/config/run/run_config.h"

#include <array>
#include <limits>
#include <nlohmann/json.hpp>

#include "engine/base/error.h"
#include "engine/config/json/strict_json.h"
#include "engine/config/model/model_limits.h"

namespace trimtab {
namespace {

constexpr int64_t kSchemaVersion = 1;
constexpr int64_t kMaxSteps = int64_t{1} << 40;
constexpr int64_t kMaxThreads = 1024;
constexpr int64_t kMaxFp8History = 1024;
constexpr double kMaxLossScale = 1ull << 32;
const std::array<std::string, 2> kFp8Scalings = {"delayed", "current"};

Fp8Config Fp8ConfigFromJson(const nlohmann::json& json, const std::string& where) {
  StrictObject object(json, where);
  Fp8Config fp8;
  object.Choice("scaling", fp8.scaling, kFp8Scalings);
  object.Integer("history", fp8.history, 1, kMaxFp8History);
  object.Texts("bf16_layers", fp8.bf16_layers, "the name of a layer");
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

}  // namespace

RunConfig RunConfigFromJson(const nlohmann::json& json, const std::string& where,
                            ModelReader read_model) {
  constexpr int64_t kMaxInt = std::numeric_limits<int64_t>::max();
  StrictObject object(json, where);
  RunConfig run;
  int64_t version = kSchemaVersion;
  object.Integer("schema_version", version, kSchemaVersion, kSchemaVersion);
  run.model = read_model(*object.Find("model", Need::kRequired), object.Where("model"));
  if (const nlohmann::json* layout = object.Find("layout")) {
    run.layout = ParallelConfigFromJson(*layout, object.Where("layout"));
  }
  if (const nlohmann::json* optimizer = object.Find("optimizer")) {
    run.optimizer = OptimizerConfigFromJson(*optimizer, object.Where("optimizer"));
  }
  object.Texts("frozen", run.frozen, "a pattern of parameter names");
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
  object.Choice("device", run.device, kDeviceNames);
  object.Integer("global_batch", run.global_batch, 1, kMaxBatch, Need::kRequired);
  object.Integer("sequence_length", run.sequence_length, 1, kMaxSequence, Need::kRequired);
  object.Integer("steps", run.steps, 0, kMaxSteps);
  object.Unsigned("seed", run.seed);
  object.Integer("threads_per_rank", run.threads_per_rank, 0, kMaxThreads);
  object.Integer("memory_per_rank_bytes", run.memory_per_rank_bytes, 0, kMaxInt);
  object.Text("data", run.data);
  object.Text("stack", run.stack);
  object.Finish();
  return run;
}

nlohmann::json ToJson(const RunConfig& run) {
  nlohmann::json json = {{"schema_version", kSchemaVersion},
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
                         {"device", Name(run.device)},
                         {"global_batch", run.global_batch},
                         {"sequence_length", run.sequence_length},
                         {"steps", run.steps},
                         {"seed", run.seed},
                         {"threads_per_rank", run.threads_per_rank},
                         {"memory_per_rank_bytes", run.memory_per_rank_bytes},
                         {"data", run.data}};
  if (run.stack != kOwnStack) json["stack"] = run.stack;
  if (!run.frozen.empty()) json["frozen"] = run.frozen;
  return json;
}

}  // namespace trimtab
