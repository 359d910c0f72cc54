#include "engine/config/rules.h"

#include <string_view>
#include <vector>

#include "engine/base/error.h"
#include "engine/config/rule_parts.h"

namespace trimtab {

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

const Rule* FirstBrokenRule(const RunConfig& run) {
  for (const Rule& rule : LegalityRules()) {
    if (!rule.holds(run)) return &rule;
  }
  return nullptr;
}

bool IsUnsupported(const Rule& rule) { return std::string_view(rule.id).ends_with("-unsupported"); }

void RequireLegal(const RunConfig& run) {
  const Rule* broken = FirstBrokenRule(run);
  if (broken == nullptr) return;
  throw InfeasibleError(fmt::format("{}: {}", broken->id, broken->message(run)));
}

std::string DescribeRules() {
  std::string text;
  for (const Rule& rule : LegalityRules())
    text += fmt::format("{:<32}{}\n", rule.id, rule.description);
  return text;
}

}  // namespace trimtab
