#include "search/race/retry.h"

#include <tuple>

#include "engine/base/error.h"
#include "engine/base/units.h"

namespace trimtab {
namespace {

/// What ran out: the memory of one rank where each has its own (a GPU, or a limit), else that of
/// the machine, which all ranks share.
int64_t NeededBytes(const CandidateRecord& candidate) {
  const RunConfig& run = candidate.run;
  const bool own = run.device != DeviceKind::kCpu || run.memory_per_rank_bytes > 0;
  return candidate.prediction()->peak_mem_bytes * (own ? 1 : run.layout.world_size());
}

}  // namespace

bool HasFailed(const CandidateRecord& candidate) {
  if (candidate.own_losses > kMostLosses) return true;
  if (candidate.failures == 0) return false;
  const bool may_pass =
      candidate.last_state == TrialState::kCrashed || candidate.last_state == TrialState::kTimedOut;
  return !may_pass || candidate.failures >= 2;
}

bool IsSuspect(const CandidateRecord& candidate) {
  return candidate.suspects > 0 || candidate.open_losses > kMostLosses;
}

bool EnvironmentFails(const std::vector<CandidateRecord>& candidates) {
  int64_t suspects = 0;
  bool ran_before = false;
  for (const CandidateRecord& candidate : candidates) {
    if (!IsSuspect(candidate)) continue;
    ++suspects;
    ran_before = ran_before || !candidate.visits.empty();
  }
  return suspects > 1 && ran_before;
}

double TimeLimitFactor(const CandidateRecord& candidate) {
  return candidate.last_state == TrialState::kTimedOut ? 2 : 1;
}

std::vector<Hopeless> FindHopeless(const std::vector<CandidateRecord>& candidates) {
  const CandidateRecord* failed = nullptr;  // the one that needed least
  for (const CandidateRecord& candidate : candidates) {
    if (candidate.last_state != TrialState::kOutOfMemory) continue;
    if (candidate.prediction() == nullptr) continue;
    if (failed == nullptr || NeededBytes(candidate) < NeededBytes(*failed)) failed = &candidate;
  }
  std::vector<Hopeless> hopeless;
  if (failed == nullptr) return hopeless;
  for (size_t i = 0; i < candidates.size(); ++i) {
    const CandidateRecord& candidate = candidates[i];
    const bool untried = candidate.visits.empty() && !candidate.measured &&
                         candidate.failures == 0 && candidate.suspects == 0;
    if (!candidate.pruned_by.empty() || !untried || candidate.prediction() == nullptr) continue;
    if (NeededBytes(candidate) < NeededBytes(*failed)) continue;
    hopeless.push_back({i, fmt::format("would need {}, and {} ran out with {}",
                                       FormatBytes(NeededBytes(candidate)), failed->key,
                                       FormatBytes(NeededBytes(*failed)))});
  }
  return hopeless;
}

}  // namespace trimtab
