// Where the seconds of a step come from: op by op and message by message.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cost_model/hardware/cluster.h"
#include "engine/config/run/run_config.h"

namespace trimtab {

/// All ops of a kind and type, or all messages of a kind in a group, in one step of one rank.
struct ExplainedPart {
  std::string what;  // "gemm bf16", "all_reduce tp"
  int64_t count = 0;
  double seconds = 0;     // one after the other: what runs beside something else counts too
  double light_s = 0;     // at the machine's peak rates and bandwidths, and without latency
  std::string priced_by;  // the numbers of the profile and the stack, and their origins
};

/// The parts of a step of the rank whose ops take longest, the longest first. Throws as DryRunStep
/// does.
std::vector<ExplainedPart> ExplainStep(const RunConfig& run, const Cluster& cluster);

}  // namespace trimtab
