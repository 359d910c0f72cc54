// Reports to make pages of: one as a search leaves it, and what may become of it.
#pragma once

#include <nlohmann/json.hpp>

#include "search/page/findings.h"

namespace trimtab {

/// testdata/report/report.json: six layouts measured, one that ran out of memory, 98 predicted.
nlohmann::json MeasuredReport();

/// The same search with nothing measured: no race, no machine, predictions only.
nlohmann::json PredictedReport();

/// One candidate and nothing to compare it with, on a machine without limit or calibration.
nlohmann::json LonelyReport();

/// With many rows and layouts longer than a line.
nlohmann::json LargeReport(int64_t rows);

/// Names and messages that try to leave their place in the page.
nlohmann::json HostileReport();
Findings HostileFindings();

/// Returns sentences for MeasuredReport.
Findings SomeFindings();

}  // namespace trimtab
