#include "engine/config/model/model_differences.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "engine/config/json/strict_json.h"

namespace trimtab {
namespace {

using Fields = std::map<std::string, nlohmann::json>;

/// Fields of a model's JSON that weights do not depend on.
constexpr const char* kOfTraining[] = {
    "name",
    "init_std",
    "make_vocab_size_divisible_by",
    "mtp_modules",
    "moe.aux_loss_coeff",
    "moe.z_loss_coeff",
    "moe.bias_update_rate",
    "moe.capacity_factor",
    "moe.drop_policy",
    "moe.pad_to_capacity",
};

Fields FieldsOf(const ModelConfig& model) {
  Fields fields;
  const nlohmann::json flat = ToJson(model).flatten();
  for (const auto& [path, value] : flat.items()) {
    std::string name = path.substr(1);
    std::ranges::replace(name, '/', '.');
    fields[name] = value;
  }
  for (const char* name : kOfTraining) fields.erase(name);
  if (!model.has_dense_layers()) fields.erase("ffn_hidden_size");
  if (model.position != PositionKind::kLearned) fields.erase("max_sequence_length");
  return fields;
}

std::string Shown(const Fields& fields, const std::string& name) {
  const auto field = fields.find(name);
  return field == fields.end() ? "nothing" : DescribeJson(field->second);
}

}  // namespace

std::vector<ModelDifference> DifferencesOf(const ModelConfig& found, const ModelConfig& expected) {
  const Fields theirs = FieldsOf(found);
  const Fields ours = FieldsOf(expected);
  Fields both = ours;
  both.insert(theirs.begin(), theirs.end());
  std::vector<ModelDifference> all;
  for (const auto& [name, ignored] : both) {
    const auto of_theirs = theirs.find(name);
    const auto of_ours = ours.find(name);
    const bool same =
        of_theirs != theirs.end() && of_ours != ours.end() && of_theirs->second == of_ours->second;
    if (!same) all.push_back({name, Shown(theirs, name), Shown(ours, name)});
  }
  return all;
}

}  // namespace trimtab
