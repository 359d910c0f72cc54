#include "search/search_options.h"

#include <utility>

namespace trimtab {

MeasureOptions SearchOptions::QuickVisit() {
  MeasureOptions visit;
  visit.warmup = 1;
  visit.steps = 2;
  visit.min_seconds = 1;
  visit.breakdown_visit = 2;  // of those that stay in the race
  visit.stable_mad = 1;       // always so: the race decides what is enough
  return visit;
}

TrialRequest SearchOptions::RequestFor(TrialJob job, const Cluster& cluster,
                                       const std::string& token) const {
  TrialRequest request;
  request.job = std::move(job);
  request.attempt = token;
  request.results_path = study_path + ".results.jsonl";
  request.log_path = study_path + ".log";
  request.ranks_per_node = cluster.ranks_per_node;
  request.time_limit_s = trial_time_limit_s;
  return request;
}

}  // namespace trimtab
