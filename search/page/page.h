// Page: REPORT.html, which stands alone.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "search/page/findings.h"

namespace trimtab {

/// One file with tables, charts and all that draws them; it fetches nothing. Without scripts the
/// tables still hold every figure. `report` is what ReportJson returns, `findings` MakeFindings.
std::string ReportHtml(const nlohmann::json& report, const Findings& findings);

/// The same of what `trimtab validate` says of published runs: its `rows`.
std::string AccuracyHtml(const nlohmann::json& validation);

/// Writes what ReportHtml has between its title and its scripts.
std::string ReportBody(const nlohmann::json& report, const Findings& findings);

/// Lists what a live page may do, for a Content-Security-Policy: as a report's page, and ask its
/// own server.
std::string LivePolicy();

/// Frames `body`, which is HTML, as a page that polls its server (live.h).
std::string LiveFrame(const std::string& body);

/// A page of that kind with this title and body, both HTML.
std::string PageHtml(const std::string& title, const std::string& body);

}  // namespace trimtab
