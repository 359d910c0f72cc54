#include "search/workload/space_summary.h"

#include <map>

#include "engine/base/error.h"
#include "engine/config/rules/rules.h"

namespace trimtab {

SpaceSummary Summarize(const PrunedCounts& left_out, const std::vector<CandidateRecord>& candidates,
                       double gap) {
  SpaceSummary summary;
  summary.gap = gap;
  std::map<std::string, int64_t> counts(left_out.begin(), left_out.end());
  const auto take = [&counts](const std::string& why) {
    const auto found = counts.extract(why);
    return found.empty() ? 0 : found.mapped();
  };
  summary.cut_by_bound = take(kBound);
  summary.cut_by_memory = take(kMemoryBound);
  summary.unexplored = take(kUnexplored);
  summary.feasible = take(kUnlisted);
  int64_t too_large = take(kMemory);
  for (const CandidateRecord& candidate : candidates) {
    if (candidate.pruned_by.empty()) {
      ++summary.feasible;
    } else if (candidate.pruned_by == kMemory) {
      ++too_large;
    } else {
      ++counts[candidate.pruned_by];
    }
  }
  summary.visited = summary.feasible + too_large;
  for (const auto& [rule, count] : counts) summary.cut_by_rule += count;
  summary.size = summary.visited + summary.cut_by_rule + summary.cut_by_memory +
                 summary.cut_by_bound + summary.unexplored;
  for (const Rule& rule : LegalityRules()) {
    if (const int64_t count = take(rule.id)) summary.pruned.emplace_back(rule.id, count);
  }
  // What is left was pruned by rules of an older version of the program.
  for (const auto& [rule, count] : counts) summary.pruned.emplace_back(rule, count);
  const int64_t memory = too_large + summary.cut_by_memory;
  if (memory > 0) summary.pruned.emplace_back(kMemory, memory);
  return summary;
}

namespace {

/// Of those that a dry run found too slow for what is required; nullptr where there is none.
const CandidateRecord* FastestRuledOut(const std::vector<CandidateRecord>& candidates) {
  const CandidateRecord* fastest = nullptr;
  for (const CandidateRecord& candidate : candidates) {
    if (!candidate.dry_run || candidate.pruned_by.empty() || candidate.pruned_by == kMemory) {
      continue;
    }
    if (fastest == nullptr || candidate.dry_run->tokens_per_s > fastest->dry_run->tokens_per_s) {
      fastest = &candidate;
    }
  }
  return fastest;
}

}  // namespace

void ThrowInfeasible(const SpaceSummary& summary, const std::vector<CandidateRecord>& candidates,
                     const std::string& advice) {
  std::string reasons;
  for (const auto& [rule, count] : summary.pruned) {
    reasons += fmt::format("{}{} by {}", reasons.empty() ? "" : ", ", count, rule);
  }
  const CandidateRecord* leanest = nullptr;
  for (const CandidateRecord& candidate : candidates) {
    if (candidate.pruned_by != kMemory) continue;
    if (leanest == nullptr ||
        candidate.prediction()->peak_mem_bytes < leanest->prediction()->peak_mem_bytes) {
      leanest = &candidate;
    }
  }
  // Of what fits by its closed form only the best is listed; all of that failed a closer look.
  if (summary.feasible > 0) {
    reasons += fmt::format("{}{} behind those that dry runs ruled out", reasons.empty() ? "" : ", ",
                           summary.feasible + summary.cut_by_bound);
  }
  if (leanest != nullptr) {
    reasons += fmt::format("; the leanest, {}, {}", leanest->key, leanest->pruned_why);
  }
  if (const CandidateRecord* fastest = FastestRuledOut(candidates)) {
    reasons += fmt::format("; the fastest, {}, {}", fastest->key, fastest->pruned_why);
  }
  if (!advice.empty()) reasons += "; " + advice;
  throw InfeasibleError(fmt::format("no feasible configuration: all {} candidates were pruned: {}",
                                    summary.size, reasons));
}

}  // namespace trimtab
