#include "engine/config/rules/rules.h"

#include <string_view>
#include <vector>

#include "engine/base/error.h"
#include "engine/config/rules/rule_parts.h"

namespace trimtab {
namespace {

/// What any run of the model asks of it.
RunConfig LeastOf(const ModelConfig& model) {
  RunConfig least;
  least.model = model;
  least.global_batch = least.sequence_length = 1;
  return least;
}

}  // namespace

std::span<const Rule> LegalityRules() {
  // The order matters: the first rules make sure that those below divide by nothing that is zero.
  static const std::vector<Rule> rules = [] {
    std::vector<Rule> all;
    for (const auto& table :
         {RunRules, PipelineRules, ModelRules, LayerRules, StepRules, ExpertRules}) {
      all.insert(all.end(), table().begin(), table().end());
    }
    return all;
  }();
  return rules;
}

const Rule* FirstBrokenRule(const RunConfig& run) { return FirstBroken(LegalityRules(), run); }

bool IsUnsupported(const Rule& rule) { return std::string_view(rule.id).ends_with("-unsupported"); }

void RequireLegal(const RunConfig& run) { RequireAll(LegalityRules(), run); }

void RequireConsistent(const ModelConfig& model, const std::string& where) {
  const RunConfig least = LeastOf(model);
  for (const Rule& rule : ModelRules()) {
    if (IsUnsupported(rule) || rule.holds(least)) continue;
    throw InputError(fmt::format("{}: {}: {}", where, rule.id, rule.message(least)));
  }
}

void RequireLegalModel(const ModelConfig& model) {
  const RunConfig least = LeastOf(model);
  RequireAll(RunRules(), least);
  RequireAll(ModelRules(), least);
}

}  // namespace trimtab
