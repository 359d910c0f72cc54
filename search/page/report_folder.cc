#include "search/page/report_folder.h"

#include <filesystem>

#include "engine/base/error.h"
#include "engine/base/io/file.h"

namespace trimtab {

void PrepareReport(const std::string& directory) {
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  if (error) {
    throw StorageError(fmt::format("{}: cannot create: {}", directory, error.message()));
  }
  RequireWritable(directory + "/report.json");
}

void WriteReportFiles(const std::string& json, const std::string& html,
                      const std::string& directory) {
  PrepareReport(directory);
  for (const auto& [name, text] : {std::pair("/report.json", &json), {"/REPORT.html", &html}}) {
    AtomicFile file(directory + name);
    file.Append(*text);
    file.Commit();
  }
}

}  // namespace trimtab
