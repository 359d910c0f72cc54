// Sections: what REPORT.html consists of, from top to bottom. `report` is what ReportJson returns.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "search/page/findings.h"

namespace trimtab {

/// What to do and why, in words.
std::string VerdictHtml(const nlohmann::json& report, const Findings& findings);

/// How the finalists were compared and when that ended, in a few sentences.
std::string RaceHtml(const nlohmann::json& report, const Findings& findings);

/// Every candidate in the running: the first in sight, the others folded.
std::string RankingHtml(const nlohmann::json& report);

/// Services that none betters in both tokens/s/GPU and tokens/s/user.
std::string FrontierHtml(const nlohmann::json& report);

/// Numerics, the recommended run, what was asked, and what worked on it.
std::string DetailsHtml(const nlohmann::json& report);

/// Writes the body of the page of a search for serving.
std::string ServingHtml(const nlohmann::json& report, const Findings& findings);

}  // namespace trimtab
