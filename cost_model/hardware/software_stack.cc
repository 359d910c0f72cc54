#include "cost_model/hardware/software_stack.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <tuple>

#include "cost_model/hardware/builtin_profiles.h"
#include "cost_model/hardware/quantity_json.h"
#include "engine/base/error.h"
#include "engine/base/nearest_name.h"
#include "engine/base/plain_name.h"
#include "engine/config/json/strict_json.h"

namespace trimtab {
namespace {

constexpr int64_t kStackVersion = 1;

const std::vector<std::string>& KernelNames() {
  static const std::vector<std::string> names = {"cudnn", "flash2", "unfused"};
  return names;
}

std::vector<std::string> StackNames() {
  std::vector<std::string> names;
  for (const SoftwareStack& each : BuiltinStacks()) names.push_back(each.name);
  return names;
}

std::vector<StackOption> OptionsFromJson(const nlohmann::json& json, const std::string& where) {
  if (!json.is_object()) throw InputError(fmt::format("{}: expected an object", where));
  std::vector<StackOption> options;
  for (const auto& [key, values] : json.items()) {
    options.push_back({key, StringsFromJson(values, where + "." + key)});
  }
  return options;
}

}  // namespace

std::string_view Name(AttentionKernel kernel) { return KernelNames()[static_cast<size_t>(kernel)]; }

const std::vector<StackNumber>& StackNumbers() {
  static const std::vector<StackNumber> numbers = {
      {"compute", &SoftwareStack::compute},
      {"fp8_compute", &SoftwareStack::fp8_compute},
      {"compute_per_year", &SoftwareStack::compute_per_year},
      {"attention", &SoftwareStack::attention},
      {"memory_traffic", &SoftwareStack::memory_traffic},
      {"loss_bytes", &SoftwareStack::loss_bytes},
      {"host_layer_s", &SoftwareStack::host_layer_s},
      {"host_tp_growth", &SoftwareStack::host_tp_growth},
      {"expert_launch_s", &SoftwareStack::expert_launch_s},
      {"tp_wait_s", &SoftwareStack::tp_wait_s},
      {"tp_exposed", &SoftwareStack::tp_exposed},
      {"ep_exposed", &SoftwareStack::ep_exposed},
      {"dp_exposed", &SoftwareStack::dp_exposed},
      {"network", &SoftwareStack::network},
      {"dispatch_s", &SoftwareStack::dispatch_s},
      {"chunk_s", &SoftwareStack::chunk_s},
      {"slowdown", &SoftwareStack::slowdown},
      {"recompute", &SoftwareStack::recompute},
      {"step_s", &SoftwareStack::step_s},
      {"memory_bytes", &SoftwareStack::memory_bytes},
      {"activations", &SoftwareStack::activations},
      {"expert_activations", &SoftwareStack::expert_activations},
      {"logit_bytes", &SoftwareStack::logit_bytes},
      {"kept_bytes", &SoftwareStack::kept_bytes},
  };
  return numbers;
}

SoftwareStack SoftwareStackFromJson(const nlohmann::json& json, const std::string& where) {
  SoftwareStack stack;
  StrictObject object(json, where);
  int64_t version = 0;
  object.Integer("schema_version", version, kStackVersion, kStackVersion, Need::kRequired);
  object.Text("name", stack.name, Need::kRequired);
  object.Text("description", stack.description, Need::kRequired);
  if (const nlohmann::json* frameworks = object.Find("frameworks")) {
    stack.frameworks = StringsFromJson(*frameworks, object.Where("frameworks"));
  }
  if (const nlohmann::json* platforms = object.Find("platforms")) {
    stack.platforms = StringsFromJson(*platforms, object.Where("platforms"));
  }
  if (const nlohmann::json* options = object.Find("options")) {
    stack.options = OptionsFromJson(*options, object.Where("options"));
  }
  object.Boolean("usual", stack.usual);
  object.Number("year", stack.year, 0, 2100);
  std::string kernel(Name(stack.attention_kernel));
  object.Choice("attention_kernel", kernel, KernelNames());
  const auto found = std::find(KernelNames().begin(), KernelNames().end(), kernel);
  stack.attention_kernel = static_cast<AttentionKernel>(found - KernelNames().begin());
  object.Boolean("fused_ops", stack.fused_ops);
  object.Boolean("fp32_gradients", stack.fp32_gradients);
  object.Boolean("overlap_grad_reduce", stack.overlap_grad_reduce);
  object.Boolean("overlap_param_gather", stack.overlap_param_gather);
  object.Boolean("compiled", stack.compiled);
  object.Boolean("blocking_launches", stack.blocking_launches);
  object.Boolean("tokens_once_per_node", stack.tokens_once_per_node);
  object.Boolean("switch_reduction", stack.switch_reduction);
  object.Boolean("shards_at_step_end", stack.shards_at_step_end);
  object.Boolean("scatters_between_stages", stack.scatters_between_stages);
  object.Boolean("keeps_16_bit_gradients", stack.keeps_16_bit_gradients);
  object.Boolean("fp8_weights", stack.fp8_weights);
  object.Boolean("whole_logits", stack.whole_logits);
  for (const StackNumber& number : StackNumbers()) {
    const nlohmann::json* value = object.Find(number.key);
    if (value != nullptr) stack.*number.member = QuantityFromJson(*value, object.Where(number.key));
  }
  for (const char* key : {"compute", "fp8_compute", "attention", "network"}) {
    if (json.contains(key) && json.at(key).at("value").get<double>() <= 0) {
      object.Refuse(key, "a value above 0");
    }
  }
  object.Finish();
  return stack;
}

nlohmann::json ToJson(const SoftwareStack& stack) {
  nlohmann::json json = {{"schema_version", kStackVersion},
                         {"name", stack.name},
                         {"description", stack.description},
                         {"frameworks", stack.frameworks},
                         {"platforms", stack.platforms},
                         {"usual", stack.usual},
                         {"year", stack.year},
                         {"attention_kernel", Name(stack.attention_kernel)},
                         {"fused_ops", stack.fused_ops},
                         {"fp32_gradients", stack.fp32_gradients},
                         {"overlap_grad_reduce", stack.overlap_grad_reduce},
                         {"overlap_param_gather", stack.overlap_param_gather},
                         {"compiled", stack.compiled},
                         {"blocking_launches", stack.blocking_launches},
                         {"tokens_once_per_node", stack.tokens_once_per_node},
                         {"switch_reduction", stack.switch_reduction},
                         {"shards_at_step_end", stack.shards_at_step_end},
                         {"scatters_between_stages", stack.scatters_between_stages},
                         {"keeps_16_bit_gradients", stack.keeps_16_bit_gradients},
                         {"fp8_weights", stack.fp8_weights},
                         {"whole_logits", stack.whole_logits}};
  for (const StackOption& option : stack.options) json["options"][option.key] = option.values;
  // A number that nobody gave has no source, and is our engine's.
  for (const StackNumber& number : StackNumbers()) {
    const Quantity& quantity = stack.*number.member;
    if (!quantity.source.empty()) json[number.key] = ToJson(quantity);
  }
  return json;
}

const std::vector<SoftwareStack>& BuiltinStacks() {
  static const std::vector<SoftwareStack> stacks = [] {
    std::vector<SoftwareStack> all = {SoftwareStack{}};
    for (const EmbeddedJson& each : StackFiles()) {
      const std::string where = std::string(each.name) + " (built in)";
      all.push_back(SoftwareStackFromJson(ParseJsonText(each.json, where), where + ": $"));
    }
    return all;
  }();
  return stacks;
}

SoftwareStack LoadSoftwareStack(const std::string& name_or_path) {
  for (const SoftwareStack& stack : BuiltinStacks()) {
    if (stack.name == name_or_path) return stack;
  }
  if (name_or_path.ends_with(".json")) {
    return SoftwareStackFromJson(ReadJsonFile(name_or_path), name_or_path + ": $");
  }
  throw UsageError(fmt::format("no software stack is called '{}'{}", name_or_path,
                               SuggestName(name_or_path, StackNames())));
}

const SoftwareStack& StackOfFramework(const std::string& framework, double year) {
  const std::vector<std::string> words = PlainWords(framework);
  // How well a stack is meant, the least first: by the kind of its name, the name's place and how
  // short it is, years between, and its own year: what is published was run before.
  using Match = std::tuple<int, size_t, size_t, double, double>;
  const SoftwareStack* best = nullptr;
  Match least;
  for (const SoftwareStack& stack : BuiltinStacks()) {
    const auto consider = [&](int kind, size_t place, size_t length) {
      const Match match = {kind, place, SIZE_MAX - length, std::abs(stack.year - year), stack.year};
      if (best != nullptr && match >= least) return;
      best = &stack;
      least = match;
    };
    const auto find = [&](int kind, const std::vector<std::string>& names) {
      for (const std::string& name : names) {
        const std::string plain = PlainName(name);
        const size_t place = FindPlainName(words, plain);
        if (place < words.size()) consider(kind, place, plain.size());
      }
    };
    find(0, stack.frameworks);
    find(1, stack.platforms);
    if (stack.usual) consider(2, 0, 0);
  }
  TRIMTAB_ASSERT(best != nullptr, "no built-in stack is for frameworks that nobody knows");
  return *best;
}

SoftwareStack InYear(SoftwareStack stack, double year) {
  if (stack.year == 0 || year == 0) return stack;
  // Runs that were published say nothing of releases further away.
  constexpr double kMostYears = 2;
  const double later = std::clamp(year - stack.year, -kMostYears, kMostYears);
  stack.compute.value *= std::pow(1 + stack.compute_per_year.value, later);
  stack.year = year;
  return stack;
}

}  // namespace trimtab
