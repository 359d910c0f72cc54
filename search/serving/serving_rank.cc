#include "search/serving/serving_rank.h"

#include <algorithm>
#include <limits>

namespace trimtab {
namespace {

// An open loop's throughput is what comes, but for the time that the last answers take; below this
// share of it requests pile up.
constexpr double kSustained = 0.8;

double Offered(const ServiceLoad& load) {
  int64_t tokens = 0;
  for (const LoadRequest& each : load.requests) tokens += each.output_tokens;
  const double seconds = load.requests.back().at_s - load.requests.front().at_s;
  return seconds > 0 ? static_cast<double>(tokens) / seconds : 0;
}

}  // namespace

ServingRank RankOf(const ServingProblem& problem, const ServingCandidate& candidate,
                   const LoadReport& report) {
  const double rise = problem.PerplexityRiseOf(candidate.config);
  const double strain = Strain(problem.requirements, {.report = report, .perplexity_rise = rise});
  const auto gpus = static_cast<double>(candidate.gpus());
  const double rate = report.output_tokens_per_s();
  const double per_token = rate > 0 ? 1 / rate : std::numeric_limits<double>::infinity();
  ServingRank rank = {.strain = strain < 1 ? 0 : strain, .among_equals = report.e2e.mean};
  const double offered = problem.load.concurrency > 0 ? 0 : kSustained * Offered(problem.load);
  const double kept_up = offered > 0 ? std::max(per_token, 1 / offered) : per_token;
  switch (problem.objective) {
    case ServingObjective::kThroughput:
      rank.score = kept_up;
      if (offered > 0) rank.among_equals = gpus;
      return rank;
    case ServingObjective::kLatency:
      rank.score = report.e2e.mean;
      rank.among_equals = gpus;
      return rank;
    case ServingObjective::kPrice:
      rank.score = gpus * per_token;
      return rank;
    case ServingObjective::kGpus:
      rank.score = gpus;
      rank.among_equals = kept_up;
      return rank;
  }
  return rank;
}

}  // namespace trimtab
