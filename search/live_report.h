// LiveReport: a study as a page shows it while its search still writes it.
#pragma once

#include <string>

namespace trimtab {

struct LiveReport {
  std::string version;  // changes when anything else does
  std::string html;  // the page's main part: progress, the report as far as there is one, the log
  std::string json;  // the report; empty while no candidate runs
};

/// Names the state of the study at `path`, without reading it: another name, another report.
std::string LiveVersion(const std::string& path);

/// Returns the study as it is now. Reads as any reader does: its search is not held up, and may be
/// another process, or have ended. Where nothing is at `path` yet, it says so. Throws
/// StorageError.
LiveReport ReadLiveReport(const std::string& path);

}  // namespace trimtab
