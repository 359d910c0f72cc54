// What rows of the tables of rules have in common.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string>

#include "engine/config/rules/rules.h"

namespace trimtab {

// The tables, in the order in which they are checked.
//
// A rule whose id ends in -unsupported says what the engine does not do yet, and goes away with the
// code that does it. The others are properties of the mathematics.

/// Sizes, limits and precision: what the others rely on.
std::span<const Rule> RunRules();
/// Schedules, chunks and the layers in them.
std::span<const Rule> PipelineRules();
/// What a model says of itself.
std::span<const Rule> ModelRules();
/// How layers are cut over tensor- and context-parallel ranks.
std::span<const Rule> LayerRules();
/// What is sharded over data-parallel ranks, batches, recomputation.
std::span<const Rule> StepRules();
/// Experts and the ranks that hold them.
std::span<const Rule> ExpertRules();

/// "<what> is <value>; this version runs <only>".
std::string Unsupported(const char* what, const auto& value, const char* only) {
  return fmt::format("{} is {}; this version runs {}", what, value, only);
}

inline std::string NotDivisible(const char* what, int64_t value, const char* by, int64_t divisor) {
  return fmt::format("{} {} is not divisible by {} {}", what, value, by, divisor);
}

}  // namespace trimtab
