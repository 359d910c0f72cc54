// "Did you mean ...?": the valid name nearest to one that was mistyped.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace trimtab {

/// Insertions, deletions, substitutions and swaps of neighbours that turn `a` into `b` (optimal
/// string alignment distance), ignoring ASCII case.
size_t EditDistance(std::string_view a, std::string_view b);

/// The element of `valid` nearest to `name` (the first of several); empty if none is near enough to
/// be what was meant: within a third of the longer name, or a beginning of one.
std::string NearestName(std::string_view name, std::span<const std::string> valid);

/// "; did you mean 'tp'?", or "; valid: tp, dp, mbs" when nothing is near.
std::string SuggestName(std::string_view name, std::span<const std::string> valid);

}  // namespace trimtab
