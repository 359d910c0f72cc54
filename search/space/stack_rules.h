// Rules that prune from the space of a problem the options that its framework lacks.
#pragma once

#include <vector>

#include "cost_model/hardware/software_stack.h"
#include "engine/config/layout/layout_keys.h"
#include "engine/config/rules/rules.h"

namespace trimtab {

/// The options of one stack, by the rows of the space that bind them. The stack must outlive it.
class StackRules {
 public:
  /// Throws InputError for an option that is no key of the space.
  explicit StackRules(const SoftwareStack& stack);

  /// Returns the rule that `layout` breaks by what row `depth` has bound; null if none. Its id
  /// names the stack: "torchtitan-has-no-such-zero".
  const Rule* Broken(size_t depth, const ParallelConfig& layout) const;

 private:
  struct Row {
    size_t depth;
    const LayoutKey* key;
    const StackOption* option;
    const Rule* rule;
  };
  std::vector<Row> rows_;
};

}  // namespace trimtab
