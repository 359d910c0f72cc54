// The second tier: the engine's own training step on the meta device, op by op.
#pragma once

#include <string>
#include <vector>

#include "cost_model/estimate.h"
#include "cost_model/hardware/cluster.h"
#include "engine/config/run/run_config.h"

namespace trimtab {

/// One op, message or pass of a stage's timeline.
struct TimelineEvent {
  std::string name;    // "gemm 512x768x768", "all_reduce tp 1.50 MiB"
  std::string stream;  // "compute" or "tp", "dp", "world"
  double start_s = 0;
  double duration_s = 0;
  int64_t stage = 0;
};

struct DryRunResult {
  Estimate estimate;                    // of the slowest stage, with the memory of the fullest
  BytesByTag peak_by_tag{};             // of the fullest rank: each tag's own peak
  BytesByTag by_tag_at_peak{};          // of the fullest rank: the split at its peak
  std::vector<TimelineEvent> timeline;  // of every stage; empty unless asked for
};

/// Steps one rank of every pipeline stage through one training step, and the stages' programs
/// against each other.
/// Throws InfeasibleError if `run` breaks a legality rule, UsageError where the profile cannot
/// price its precision, InputError where `run.fp8` names a layer that is not there.
DryRunResult DryRunStep(const RunConfig& run, const Cluster& cluster, bool with_timeline);

/// What a rank of one pipeline stage does and holds; no times but the parts that are its own.
Estimate DryRunStage(const RunConfig& run, const Cluster& cluster, int64_t stage);

/// DryRunStep's estimate.
Estimate DryRun(const RunConfig& run, const Cluster& cluster);

/// The same, of stages that are like each other one alone, and of as few micro batches as there are
/// kinds of: the first, the last, and one amid, which stands for all others. Memory is that of the
/// fullest of `stages`, of which the closed form knows it to the byte
/// (ClosedFormEstimator::Stages).
Estimate BriefDryRun(const RunConfig& run, const Cluster& cluster,
                     const std::vector<Estimate>& stages);

/// Writes a timeline in Chrome's trace format (chrome://tracing, Perfetto). Throws StorageError.
void WriteChromeTrace(const std::vector<TimelineEvent>& timeline, const std::string& path);

}  // namespace trimtab
