// Driver: the search from problem to recommendation.
#pragma once

#include <vector>

#include "search/search_options.h"
#include "search/search_result.h"
#include "search/workload/workload.h"

namespace trimtab {

/// Enumerates, prunes, predicts, proves and recommends; everything is in the study when it returns
/// or throws. With study.resume, goes on where an earlier search of the same problem stopped, with
/// the prices that it began with.
/// Throws InfeasibleError (nothing fits: lists what pruned everything; or every trial failed),
/// UsageError, InputError, StorageError as Study::Open does.
SearchResult RunSearch(Workload& workload, const SearchOptions& options, TrialRunner& runner,
                       SearchEvents& events);

/// Runs trials in child processes of this program. Throws EnvironmentError, before it
/// touches the study, when trials are asked for that this machine cannot run.
SearchResult RunSearch(Workload& workload, const SearchOptions& options, SearchEvents& events);

/// Returns what the launcher would be asked for the best candidates that a search without trials
/// found.
std::vector<LaunchPlan> PlanTrials(const Workload& workload, const SearchOptions& options,
                                   const SearchResult& ranked);

}  // namespace trimtab
