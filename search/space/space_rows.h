// The dimensions of the search as rows: the space is their product.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "cost_model/closed_form/closed_form.h"
#include "engine/config/rules/rules.h"
#include "search/space/space.h"

namespace trimtab {

/// Which rows below a row look at its value.
enum class Readers : uint8_t {
  kAny,
  kLast,  // the last row alone
  kNone,  // below each value there are as many candidates
};

/// One dimension. Rows are bound from the first to the last; `bound` has what the rows above have
/// bound, and the default of everything below.
struct SpaceRow {
  const char* name;  // that of two rows where one is bound in two steps
  /// Whether the dimension exists there. Where it does not, its default stays.
  bool (*applies)(const Problem& problem, const RunConfig& bound);
  /// Appends its values, in the order of the search. What they stand for only `bind` knows. None at
  /// all: what is bound leads nowhere.
  void (*values)(const Problem& problem, const RunConfig& bound, std::vector<int64_t>& values);
  void (*bind)(const Problem& problem, int64_t value, RunConfig& run);
  /// Rules that hold or do not whatever the rows below bind, in the order of LegalityRules(): one
  /// that does not prunes all that is below at once.
  std::vector<const char*> settles;
  /// Whether two candidates have the same value. nullptr for what only the best value is of
  /// interest of, given all else.
  bool (*alike)(const RunConfig& a, const RunConfig& b);
  Readers readers = Readers::kAny;
  /// The last row below that looks at its value; nullptr where that may be the last of all.
  const char* last_reader = nullptr;
  /// The part of a layout that is chosen once this row is bound: branch and bound asks for a lower
  /// bound there.
  std::optional<LayoutPart> completes = std::nullopt;
};

/// Every dimension, in the order in which they are bound.
///
/// Rows list what a search should try, also what the engine cannot run yet: a value that breaks an
/// -unsupported rule is no part of the space until that rule goes.
const std::vector<SpaceRow>& SpaceRows();

/// Returns how many rows are bound once `part`, which a row completes, is chosen.
size_t RowsOf(LayoutPart part);

/// Returns `precision` with each optimizer state of the problem, each once: two names may mean the
/// same.
std::vector<Numerics> OptimizerStates(const Problem& problem, Precision precision);

}  // namespace trimtab
