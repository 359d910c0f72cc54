// Legality rules: what a layout must satisfy. One table serves the engine (refuses), the search
// (prunes and counts per rule) and the docs (list).
#pragma once

#include <span>
#include <string>

#include "engine/config/rules/legality_rule.h"
#include "engine/config/run/run_config.h"

namespace trimtab {

using Rule = LegalityRule<RunConfig>;

/// Every rule, in the order they are checked.
std::span<const Rule> LegalityRules();

/// The first rule `run` breaks, or nullptr if it is legal.
const Rule* FirstBrokenRule(const RunConfig& run);

/// Whether `rule` says what the engine does not do yet, rather than what cannot be.
bool IsUnsupported(const Rule& rule);

/// Throws InfeasibleError "rule-id: message" if `run` breaks a rule.
void RequireLegal(const RunConfig& run);

/// Throws InputError at `where` for a model whose numbers contradict each other, whatever the
/// engine supports, and whatever the layout and the sequence are.
void RequireConsistent(const ModelConfig& model, const std::string& where);

/// Throws InfeasibleError likewise if `model` breaks a rule whatever the layout and the sequence.
void RequireLegalModel(const ModelConfig& model);

}  // namespace trimtab
