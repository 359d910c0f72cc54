// The two ways to put a load on something: open (requests come when they come) and closed (so many
// clients, each waiting for its answer).
#pragma once

#include <functional>
#include <vector>

#include "profiler/serving/load_target.h"

namespace trimtab {

struct LoadOptions {
  int64_t concurrency = 0;   // clients of a closed loop; 0: an open loop, by LoadRequest::at_s
  int64_t vocab_size = 256;  // prompts are random ids below it
  uint64_t seed = 1;
  /// Asked before each request; no more are sent once it is true.
  std::function<bool()> stop = [] { return false; };
};

/// Sends the requests and waits for their ends. Outcomes are in the order of the requests; those
/// that were not sent are left out. An answer that is shorter than asked is a failure: the load was
/// another. Throws EnvironmentError where the machine has no thread for each request on its way.
std::vector<LoadOutcome> PutLoad(LoadTarget& target, const std::vector<LoadRequest>& requests,
                                 const LoadOptions& options);

}  // namespace trimtab
