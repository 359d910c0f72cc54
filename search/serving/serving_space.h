// The space of a search for serving: rows of dimensions, whose product is walked with the engine's
// rules of serving.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "cost_model/hardware/cluster.h"
#include "cost_model/serving/serving_prediction.h"
#include "engine/infer/serving_config.h"
#include "search/serving/serving_problem.h"
#include "search/space/space_description.h"

namespace trimtab {

/// Requests that one of so many replicas can have at once.
int64_t MostInFlight(const ServiceLoad& load, int64_t replicas);

/// A configuration, whose replicas (layout.dp) share the load.
struct ServingCandidate {
  ServingConfig config{};

  int64_t gpus() const { return config.layout.world_size(); }
  /// "tp=4,pp=1,ep=1,weights=fp8,cache=fp8,prefix=on,replicas=2,sequences=64,tokens=2048"; what is
  /// 0 is left out.
  std::string Key() const;
};

/// One dimension.
struct ServingDimension {
  const char* name;
  const char* meaning;
  /// What it can be, given the problem and the dimensions before it.
  std::vector<int64_t> (*values)(const ServingProblem& problem, const ServingCandidate& bound);
  void (*bind)(ServingCandidate& candidate, int64_t value);
  int64_t (*value)(const ServingCandidate& candidate);
  /// Of names, in the order of their values; null where values are numbers.
  const std::vector<std::string>& (*names)();
  int64_t least = 1;      // of numbers
  bool is_limit = false;  // what a service never reaches does not change how it runs

  std::string Text(int64_t of) const;
  /// A value that `flag` gives. Throws UsageError naming that and the dimension.
  int64_t Parse(const std::string& text, const char* flag) const;
};
const std::vector<ServingDimension>& ServingDimensions();
/// The dimensions as keys of --fix, --allow and --forbid.
const NarrowingKeys& ServingKeys();

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
