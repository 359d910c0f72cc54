// A legality rule as data, of whatever configuration it judges.
#pragma once

#include <fmt/core.h>

#include <span>
#include <string>

#include "engine/base/error.h"

namespace trimtab {

/// One rule. `holds` is the condition; `message` explains a breach with both numbers that disagree.
template <typename Config>
struct LegalityRule {
  const char* id;           // stable, kebab-case: stored in studies, e.g. "heads-divisible-by-tp"
  const char* description;  // one sentence for the docs
  bool (*holds)(const Config& config);
  std::string (*message)(const Config& config);
};

/// Returns the first rule that `config` breaks; nullptr if it breaks none.
template <typename Config>
const LegalityRule<Config>* FirstBroken(std::span<const LegalityRule<Config>> rules,
                                        const Config& config) {
  for (const LegalityRule<Config>& rule : rules) {
    if (!rule.holds(config)) return &rule;
  }
  return nullptr;
}

/// Throws InfeasibleError "rule-id: message" for the first rule that `config` breaks.
template <typename Config>
void RequireAll(std::span<const LegalityRule<Config>> rules, const Config& config) {
  const LegalityRule<Config>* broken = FirstBroken(rules, config);
  if (broken == nullptr) return;
  throw InfeasibleError(fmt::format("{}: {}", broken->id, broken->message(config)));
}

}  // namespace trimtab
