#include "engine/config/run/optimizer_config.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "engine/base/error.h"
#include "engine/base/nearest_name.h"
#include "engine/config/json/strict_json.h"
#include "engine/config/model/model_limits.h"

namespace trimtab {
namespace {

constexpr int64_t kMostScheduleSteps = int64_t{1} << 40;

ParameterGroup GroupFromJson(const nlohmann::json& json, const std::string& where) {
  StrictObject object(json, where);
  ParameterGroup group;
  object.Texts("match", group.match, "a pattern of parameter names", Need::kRequired);
  if (group.match.empty()) object.Refuse("match", "at least one pattern of parameter names");
  object.Number("learning_rate_factor", group.learning_rate_factor, 0.0, 1e3);
  if (object.Find("weight_decay") != nullptr) {
    bool decays = false;
    object.Boolean("weight_decay", decays);
    group.weight_decay = decays;
  }
  object.Finish();
  return group;
}

nlohmann::json ToJson(const ParameterGroup& group) {
  nlohmann::json json = {{"match", group.match},
                         {"learning_rate_factor", group.learning_rate_factor}};
  if (group.weight_decay) json["weight_decay"] = *group.weight_decay;
  return json;
}

std::vector<std::string> OptimizerNames() {
  std::vector<std::string> names;
  for (const OptimizerKind kind : kOptimizerKinds) names.emplace_back(Name(kind));
  return names;
}

}  // namespace

std::string_view Name(OptimizerKind kind) {
  switch (kind) {
    case OptimizerKind::kAdamW:
      return "adamw";
    case OptimizerKind::kSgd:
      return "sgd";
    case OptimizerKind::kMuon:
      return "muon";
  }
  TRIMTAB_ASSERT(false, "optimizer {}", static_cast<int>(kind));
}

OptimizerKind ParseOptimizerKind(const std::string& name) {
  for (const OptimizerKind kind : kOptimizerKinds) {
    if (Name(kind) == name) return kind;
  }
  throw UsageError(
      fmt::format("unknown optimizer '{}'{}", name, SuggestName(name, OptimizerNames())));
}

void OptimizerConfig::ScaleTo(double rate) {
  if (learning_rate > 0) {
    // Rounded, so that a peak of 1e-3 has a minimum of 1e-4 whichever peak it was scaled from.
    min_learning_rate =
        std::stod(fmt::format("{:.15g}", min_learning_rate * (rate / learning_rate)));
  }
  learning_rate = rate;
}

OptimizerConfig OptimizerConfigFromJson(const nlohmann::json& json, const std::string& where) {
  StrictObject object(json, where);
  OptimizerConfig optimizer;
  std::string kind(Name(optimizer.kind));
  object.Choice("kind", kind, OptimizerNames());
  optimizer.kind = ParseOptimizerKind(kind);
  double rate = optimizer.learning_rate;
  object.Number("learning_rate", rate, 0.0, 1e3);
  optimizer.ScaleTo(rate);
  object.Number("min_learning_rate", optimizer.min_learning_rate, 0.0, 1e3);
  object.Number("beta1", optimizer.beta1, 0.0, 0.999999);
  object.Number("beta2", optimizer.beta2, 0.0, 0.999999);
  object.Number("epsilon", optimizer.epsilon, 1e-30, 1.0);
  object.Number("momentum", optimizer.momentum, 0.0, 0.999999);
  object.Boolean("nesterov", optimizer.nesterov);
  object.Number("weight_decay", optimizer.weight_decay, 0.0, 1e3);
  object.Number("clip_grad", optimizer.clip_grad, 0.0, 1e9);
  object.Integer("warmup_steps", optimizer.warmup_steps, 0, kMostScheduleSteps);
  object.Integer("decay_steps", optimizer.decay_steps, 0, kMostScheduleSteps);
  if (const nlohmann::json* groups = object.Find("groups")) {
    if (!groups->is_array()) object.Refuse("groups", "an array of groups of parameters");
    for (const nlohmann::json& group : *groups) {
      optimizer.groups.push_back(GroupFromJson(
          group, fmt::format("{}[{}]", object.Where("groups"), optimizer.groups.size())));
    }
  }
  object.Finish();
  if (optimizer.min_learning_rate > optimizer.learning_rate) {
    throw InputError(
        fmt::format("{}.min_learning_rate: expected at most the learning_rate {}, got {}", where,
                    optimizer.learning_rate, optimizer.min_learning_rate));
  }
  return optimizer;
}

nlohmann::json ToJson(const OptimizerConfig& optimizer) {
  nlohmann::json json = {{"learning_rate", optimizer.learning_rate},
                         {"min_learning_rate", optimizer.min_learning_rate},
                         {"beta1", optimizer.beta1},
                         {"beta2", optimizer.beta2},
                         {"epsilon", optimizer.epsilon},
                         {"weight_decay", optimizer.weight_decay},
                         {"clip_grad", optimizer.clip_grad},
                         {"warmup_steps", optimizer.warmup_steps},
                         {"decay_steps", optimizer.decay_steps}};
  // Nothing of them is AdamW's.
  if (optimizer.kind != OptimizerKind::kAdamW) {
    json["kind"] = Name(optimizer.kind);
    json["momentum"] = optimizer.momentum;
    json["nesterov"] = optimizer.nesterov;
  }
  for (const ParameterGroup& group : optimizer.groups) json["groups"].push_back(ToJson(group));
  return json;
}

}  // namespace trimtab
