#include "search/serving/serving_rank.h"

#include <algorithm>
#include <limits>

namespace trimtab {
ServingRank RankOf(const ServingProblem& problem, const ServingCandidate& candidate,
                   const LoadReport& report) {
  const double rise = problem.PerplexityRiseOf(candidate.config);
  const double strain = Strain(problem.requirements, {.report = report, .perplexity_rise = rise});
  const auto gpus = static_cast<double>(candidate.gpus());
  ServingRank rank = {.strain = strain < 1 ? 0 : strain, .among_equals = report.e2e.mean};
  const double kept_up = SecondsPerToken(report, problem.load);
  switch (problem.objective) {
    case Objective::kLatency:
      rank.score = report.e2e.mean;
      rank.among_equals = gpus;
      return rank;
    case Objective::kCost:
      rank.score = (problem.cluster.device == DeviceKind::kCpu ? 1 : gpus) * kept_up;
      return rank;
    case Objective::kGpus:
      rank.score = gpus;
      rank.among_equals = kept_up;
      return rank;
    default:
      rank.score = kept_up;
      if (problem.load.concurrency == 0) rank.among_equals = gpus;
      return rank;
  }
}

}  // namespace trimtab
