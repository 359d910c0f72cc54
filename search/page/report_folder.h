// The folder of a report: report.json for programs, REPORT.html for people.
#pragma once

#include <string>

namespace trimtab {

/// Creates `directory` where it is missing, and checks that a report can be written there: before
/// long work, not after it. Throws StorageError.
void PrepareReport(const std::string& directory);

/// Writes both files, each whole or not at all. Throws StorageError.
void WriteReportFiles(const std::string& json, const std::string& html,
                      const std::string& directory);

}  // namespace trimtab
