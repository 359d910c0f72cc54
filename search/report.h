// Report: report.json (report.schema.json describes it) and REPORT.html from a search.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "search/driver.h"
#include "search/page/findings.h"

namespace trimtab {

/// The report. `recommended.run` is a RunConfig: `trimtab train --config report.json` takes it.
nlohmann::json ReportJson(const SearchResult& result);

/// Returns what the result says in sentences.
Findings MakeFindings(const SearchResult& result);

/// How far the machine's speed wandered, in a line; empty when no visit was probed.
std::string MachineSpeedText(const SearchResult& result);
/// What the probe does not explain, in a line; empty when nothing.
std::string ProbeNote(const SearchResult& result);
/// Where ranks were slower than the others, in a line; empty when none was.
std::string StragglerNote(const SearchResult& result);

/// Writes DIR/report.json and DIR/REPORT.html, each whole or not at all; creates DIR.
/// Throws StorageError.
void WriteReport(const SearchResult& result, const std::string& directory);

/// Both files from the study alone. Throws as Study::OpenExisting, ResultFromStudy and WriteReport
/// do.
void WriteReportFromStudy(const std::string& study_path, const std::string& directory);

}  // namespace trimtab
