// The dimensions of a search for serving, one row each, and the candidates that they make.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "search/serving/serving_problem.h"

namespace trimtab {

inline constexpr int64_t kMostSequences = 1024;  // of a replica

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
  /// Returns the names, in the order of their values; null where values are numbers.
  const std::vector<std::string>& (*names)();
  int64_t least = 1;      // of numbers
  bool is_limit = false;  // what a service never reaches does not change how it runs

  std::string Text(int64_t of) const;
  /// A value that `flag` gives. Throws UsageError naming that and the dimension.
  int64_t Parse(const std::string& text, const char* flag) const;
};
const std::vector<ServingDimension>& ServingDimensions();
/// The dimension of this name, which there is.
const ServingDimension& DimensionCalled(const std::string& name);
/// The dimensions as keys of --fix, --allow and --forbid.
const NarrowingKeys& ServingKeys();

}  // namespace trimtab
