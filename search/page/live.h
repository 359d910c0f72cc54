// Live page: a report that is fetched anew while its search goes on.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace trimtab {

/// What such a page may do, for the header Content-Security-Policy: beyond what a report may, ask
/// its own server.
extern const char* const kLivePolicy;

/// What the page holds: how far the search is, the report, and the log of trials. `report` is what
/// ReportJson returns, or null where there is none yet. `progress` is of search/live_report.cc.
std::string LiveHtml(const nlohmann::json& progress, const nlohmann::json& report);

/// The same where there is no study yet.
std::string WaitingHtml(const std::string& study_path);

/// The page around it, which asks its server for "state?since=VERSION" and puts in what it gets.
std::string LivePageHtml(const std::string& version, const std::string& html);

}  // namespace trimtab
