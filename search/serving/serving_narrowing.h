// What --fix and --allow of a search for serving may ask for.
#pragma once

#include "search/serving/serving_space.h"

namespace trimtab {

/// The flags that narrow a dimension, in messages.
inline constexpr char kAllowFlags[] = "--fix, --allow";

/// Throws UsageError for a dimension or a value of `problem.allowed` that there is not, and
/// InfeasibleError where all that is allowed needs more ranks than the cluster has.
void RequireChoosable(const ServingProblem& problem);

}  // namespace trimtab
