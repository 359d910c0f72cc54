// The space of a search for serving: the product of its dimensions, walked with the engine's rules
// of serving.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "cost_model/hardware/cluster.h"
#include "cost_model/serving/serving_prediction.h"
#include "engine/infer/serving_config.h"
#include "search/serving/serving_dimensions.h"
#include "search/space/space_description.h"

namespace trimtab {

/// Candidates that differ only in their limits and, but on cpu, in how many replicas there are:
/// they share recordings, prices and weights. On cpu replicas share what the machine reaches.
struct ServingBranch {
  ServingConfig config{};  // legal, with the longest sequence of the load
  std::vector<ServingCandidate> candidates{};
};

/// Rules of the space beside those of the engine.
inline constexpr char kTensorRule[] =
    "serving-tp-in-node";  // as messages within a layer are priced
inline constexpr char kPrefillRule[] = "serving-prefill";
inline constexpr char kLimitsRule[] = "serving-limits";

struct ServingSpace {
  int64_t size = 0;
  std::map<std::string, int64_t> cut_by_rule{};  // candidates, by the first rule that they break
  std::vector<ServingBranch> branches{};
};

/// "tp=4,weights=fp8,sequences=64,..." as a candidate, which is legal but may not fit. What is left
/// out is 1, or the first of the problem's weights and caches, or as usual. Throws UsageError,
/// InfeasibleError.
ServingCandidate ParseServingCandidate(const ServingProblem& problem, const std::string& text);

/// Throws UsageError where the narrowings leave a dimension without a value, and where nothing says
/// the quality of what is legal and a requirement limits it; InfeasibleError where all that they
/// leave needs more ranks than the cluster has.
ServingSpace WalkServingSpace(const ServingProblem& problem);

/// Walks the whole space; nothing is predicted. Throws UsageError as WalkServingSpace does.
SpaceDescription DescribeServingSpace(ServingProblem problem);

}  // namespace trimtab
