// The study of a search for serving: one SQLite file with the problem, what was measured before
// candidates were compared, every visit that has ended, and the report of what is known so far.
//
//   problem(json)                        what is searched; a study has one
//   rates(key, json)                     of a model in a layout and precision, as calibrated; and
//                                        how far the perplexity rises, by weights and cache
//   visits(key, round, report, failure)  of a candidate, one a round; report or failure is NULL
//   report(json)                         what all of this comes to: at most one row
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "engine/infer/load_report.h"
#include "search/study/sqlite.h"
#include "search/study/study_file.h"

namespace trimtab {

/// A candidate under the load, once.
struct ServingVisit {
  std::string key{};  // of the candidate
  int64_t round = 0;  // from 1
  LoadReport report{};
  std::string failure{};  // why there is none; empty if there is
};

class ServingStudy {
 public:
  /// Creates `path`, or with `resume` goes on with it. Throws UsageError (it exists, no resume),
  /// InputError (of another problem), StorageError (corrupt, locked, unwritable, another kind).
  static std::unique_ptr<ServingStudy> Open(const std::string& path, const nlohmann::json& problem,
                                            bool resume);

  /// Reads an existing study of any problem as it is now, whether or not a search writes it. Throws
  /// InputError (no such file), StorageError.
  static std::unique_ptr<ServingStudy> OpenExisting(const std::string& path);

  std::optional<nlohmann::json> FindMeasured(const std::string& key);
  void AddMeasured(const std::string& key, const nlohmann::json& value);

  /// With what the report says now; both are on disk when it returns. Twice the same visit is once.
  void AddVisit(const ServingVisit& visit, const nlohmann::json& report);
  std::vector<ServingVisit> Visits();

  /// What ServingReportJson returns.
  void SetReport(const nlohmann::json& report);
  /// Throws InputError when the search was ended before there was one.
  nlohmann::json Report();

  const std::string& path() const { return database_.path(); }
  /// Whether Open made it: nothing that lies beside it is its own.
  bool created() const { return created_; }
  /// Called after each write, for tests that kill.
  void set_after_write(std::function<void()> hook) { database_.set_after_write(std::move(hook)); }

 private:
  ServingStudy(const std::string& path, Access access) : database_(path, access) {}
  void Create(const nlohmann::json& problem);
  /// Throws StorageError for what is no such study.
  void CheckSchema();
  void InsertReport(const nlohmann::json& report);
  void CheckProblem(const nlohmann::json& problem);

  Database database_;
  bool created_ = false;
};

}  // namespace trimtab
