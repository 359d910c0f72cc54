// Live page: a report that is fetched anew while its search goes on.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace trimtab {

/// Writes the page's main part: the search's progress, the report, and the log of trials. `report`
/// is made by ReportBody, or empty where there is none yet; `progress` by search/live_report.cc.
std::string LiveHtml(const nlohmann::json& progress, const std::string& report);

/// Writes the page's main part where there is no study yet.
std::string WaitingHtml(const std::string& study_path);

/// Writes the page around it. The page polls its server for "state?since=VERSION", and replaces its
/// main part by the answer.
std::string LivePageHtml(const std::string& version, const std::string& html);

}  // namespace trimtab
