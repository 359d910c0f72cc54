#include "search/serving/serving_study.h"

#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "engine/base/error.h"
#include "engine/config/strict_json.h"
#include "search/study/another_problem.h"

namespace trimtab {
std::unique_ptr<ServingStudy> ServingStudy::Open(const std::string& path,
                                                 const nlohmann::json& problem, bool resume) {
  RequireNewOrResumed(path, resume);
  auto study = std::unique_ptr<ServingStudy>(new ServingStudy(path, Access::kCreate));
  const int64_t schema = study->database_.QueryInt("PRAGMA user_version");
  const int64_t tables = study->database_.QueryInt("SELECT COUNT(*) FROM sqlite_master");
  if (schema == 0 && tables == 0) {
    study->Create(problem);
    study->created_ = true;
  } else {
    study->CheckSchema();
    study->CheckProblem(problem);
  }
  return study;
}

std::unique_ptr<ServingStudy> ServingStudy::OpenExisting(const std::string& path) {
  if (!std::filesystem::exists(path)) throw InputError(fmt::format("{}: no such study", path));
  auto study = std::unique_ptr<ServingStudy>(new ServingStudy(path, Access::kRead));
  study->CheckSchema();
  return study;
}

void ServingStudy::Create(const nlohmann::json& problem) {
  database_.Transaction([&] {
    database_.Execute(
        "CREATE TABLE problem(json TEXT NOT NULL);"
        "CREATE TABLE rates(key TEXT PRIMARY KEY, json TEXT NOT NULL);"
        "CREATE TABLE visits(key TEXT NOT NULL, round INTEGER NOT NULL, report TEXT, failure TEXT,"
        " PRIMARY KEY(key, round), CHECK((report IS NULL) != (failure IS NULL)));"
        "CREATE TABLE report(one INTEGER PRIMARY KEY, json TEXT NOT NULL)");
    database_.Prepare("INSERT INTO problem VALUES(?)").Bind(1, problem.dump()).Run();
    database_.Execute(fmt::format("PRAGMA user_version = {}", kServingStudySchemaVersion));
  });
}

void ServingStudy::CheckSchema() {
  if (database_.QueryInt("PRAGMA user_version") == kServingStudySchemaVersion) return;
  throw StorageError(fmt::format("{}: not a study of a search for serving", path()));
}

void ServingStudy::CheckProblem(const nlohmann::json& problem) {
  Statement select = database_.Prepare("SELECT json FROM problem");
  if (!select.Step()) throw StorageError(fmt::format("{}: damaged: no problem in it", path()));
  const nlohmann::json stored = ParseJsonText(select.Text(0), path());
  if (stored == problem) return;
  ThrowAnotherProblem(path(), stored, problem);
}

std::optional<nlohmann::json> ServingStudy::FindMeasured(const std::string& key) {
  Statement select = database_.Prepare("SELECT json FROM rates WHERE key = ?");
  select.Bind(1, key);
  if (!select.Step()) return std::nullopt;
  return ParseJsonText(select.Text(0), path());
}

void ServingStudy::AddMeasured(const std::string& key, const nlohmann::json& value) {
  database_.Transaction([&] {
    Statement insert = database_.Prepare("INSERT OR REPLACE INTO rates VALUES(?, ?)");
    insert.Bind(1, key).Bind(2, value.dump()).Run();
  });
}

void ServingStudy::AddVisit(const ServingVisit& visit, const nlohmann::json& report) {
  database_.Transaction([&] {
    Statement insert = database_.Prepare("INSERT OR IGNORE INTO visits VALUES(?, ?, ?, ?)");
    insert.Bind(1, visit.key).Bind(2, visit.round);
    if (visit.failure.empty()) {
      insert.Bind(3, ToJson(visit.report).dump()).BindNull(4);
    } else {
      insert.BindNull(3).Bind(4, visit.failure);
    }
    insert.Run();
    InsertReport(report);
  });
}

void ServingStudy::InsertReport(const nlohmann::json& report) {
  database_.Prepare("INSERT OR REPLACE INTO report VALUES(1, ?)").Bind(1, report.dump()).Run();
}

void ServingStudy::SetReport(const nlohmann::json& report) {
  database_.Transaction([&] { InsertReport(report); });
}

nlohmann::json ServingStudy::Report() {
  Statement select = database_.Prepare("SELECT json FROM report");
  if (!select.Step()) {
    throw InputError(fmt::format(
        "{}: no report in it: the search was ended too early; go on with --resume", path()));
  }
  return ParseJsonText(select.Text(0), path());
}

std::vector<ServingVisit> ServingStudy::Visits() {
  std::vector<ServingVisit> visits;
  Statement select =
      database_.Prepare("SELECT key, round, report, failure FROM visits ORDER BY round, rowid");
  while (select.Step()) {
    ServingVisit& visit = visits.emplace_back();
    visit.key = select.Text(0);
    visit.round = select.Int(1);
    if (select.IsNull(2)) {
      visit.failure = select.Text(3);
    } else {
      const std::string where = fmt::format("{}: visits, {}", path(), visit.key);
      visit.report = LoadReportFromJson(ParseJsonText(select.Text(2), where), where);
    }
  }
  return visits;
}

}  // namespace trimtab
