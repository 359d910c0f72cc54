// What rows of the tables of rules have in common.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string>

#include "engine/config/rules.h"

namespace trimtab {

/// Rules about experts and the ranks that hold them, to be checked after the others.
std::span<const Rule> ExpertRules();

/// "<what> is <value>; this version runs <only>".
std::string Unsupported(const char* what, const auto& value, const char* only) {
  return fmt::format("{} is {}; this version runs {}", what, value, only);
}

inline std::string NotDivisible(const char* what, int64_t value, const char* by, int64_t divisor) {
  return fmt::format("{} {} is not divisible by {} {}", what, value, by, divisor);
}

}  // namespace trimtab
