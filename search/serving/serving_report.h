// The report of a search for serving: report.json, whose `recommended.serving` `trimtab serve
// --config` takes, and REPORT.html.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "search/serving/serving_proof.h"

namespace trimtab {

/// One evaluated candidate.
nlohmann::json ToJson(const ServingEvaluation& evaluation);

/// Requirements that a candidate with this report does not meet, each as it would have to be
/// relaxed; empty when all are met. Of the best's, no candidate needs less relaxing of the one that
/// is furthest off.
std::vector<std::string> Relaxations(const ServingProblem& problem,
                                     const ServingCandidate& candidate, const LoadReport& report);

/// `proof` is null where nothing was measured: then the best predicted one is recommended.
nlohmann::json ServingReportJson(const ServingProblem& problem, const ServingSearchResult& result,
                                 const ServingProof* proof);

/// The problem, as it identifies a study: all that changes what is searched.
nlohmann::json ServingProblemJson(const ServingProblem& problem);

/// One file that fetches nothing. `report` is what ServingReportJson returns.
std::string ServingReportHtml(const nlohmann::json& report);

/// Writes DIR/report.json and DIR/REPORT.html, each whole or not at all. Throws StorageError.
void WriteServingReport(const nlohmann::json& report, const std::string& directory);

}  // namespace trimtab
