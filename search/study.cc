#include "search/study.h"

#include <sqlite3.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "engine/base/error.h"
#include "search/study_schema.h"

namespace trimtab {
namespace {

/// The moment of a statement, in SQL: 2024-05-01T12:00:00.000Z.
#define TRIMTAB_SQL_NOW "strftime('%Y-%m-%dT%H:%M:%fZ', 'now')"

/// How long a resumed driver waits for the worker of a killed one to be gone.
constexpr double kWorkerWaitSeconds = 30;

/// 64-bit FNV-1a (Fowler, Noll, Vo), in hexadecimal.
std::string Hash(const std::string& text) {
  uint64_t hash = 0xcbf29ce484222325ULL;
  for (const char c : text) {
    hash ^= static_cast<unsigned char>(c);
    hash *= 0x100000001b3ULL;
  }
  return fmt::format("{:016x}", hash);
}

/// Says where two problems differ: the first difference, and how many more there are.
std::string Difference(const nlohmann::json& stored, const nlohmann::json& asked) {
  const nlohmann::json patch = nlohmann::json::diff(stored, asked);
  const nlohmann::json::json_pointer place(patch.at(0).at("path").get<std::string>());
  const auto value = [&](const nlohmann::json& problem) {
    return problem.contains(place) ? problem.at(place).dump() : std::string("nothing");
  };
  std::string text = fmt::format("{} is {} in the study and {} now", place.to_string().substr(1),
                                 value(stored), value(asked));
  if (patch.size() > 1) text += fmt::format(", and {} more", patch.size() - 1);
  return text;
}

}  // namespace

Study::Study(std::unique_ptr<Database> database)
    : path_(database->path()), database_(std::move(database)) {}

Study::~Study() = default;

std::unique_ptr<Study> Study::Open(const std::string& path, const Problem& problem,
                                   const StudyOptions& options) {
  const bool exists = std::filesystem::exists(path);
  if (exists && !options.resume) {
    throw UsageError(
        fmt::format("{}: this study exists already; go on with it with --resume, or name another "
                    "file with --study",
                    path));
  }
  auto database = std::make_unique<Database>(path, /*create=*/true);
  database->set_after_write(options.after_write);
  std::unique_ptr<Study> study(new Study(std::move(database)));
  if (!study->CheckSchema()) study->Create(problem);
  study->CheckProblem(problem);
  study->NoteVersion("trimtab", options.program_version);
  study->NoteVersion("sqlite", sqlite3_libversion());
  return study;
}

std::unique_ptr<Study> Study::OpenExisting(const std::string& path) {
  if (!std::filesystem::exists(path)) throw InputError(fmt::format("{}: no such study", path));
  std::unique_ptr<Study> study(new Study(std::make_unique<Database>(path, /*create=*/false)));
  if (!study->CheckSchema()) throw InputError(fmt::format("{}: an empty file, not a study", path));
  return study;
}

void Study::ThrowDamaged(const std::string& detail) const {
  throw StorageError(fmt::format("{}: not a study, or a damaged one ({})", path_, detail));
}

bool Study::CheckSchema() {
  const int64_t application = database_->QueryInt("PRAGMA application_id");
  const int64_t version = database_->QueryInt("PRAGMA user_version");
  const int64_t tables = database_->QueryInt("SELECT count(*) FROM sqlite_schema");
  if (application == 0 && version == 0 && tables == 0) {
    if (std::filesystem::file_size(path_) == 0) return false;
    ThrowDamaged("almost nothing is left of it");
  }
  if (application != kStudyApplicationId) ThrowDamaged("a database of another program");
  if (version > kStudySchemaVersion) {
    throw StorageError(fmt::format("{}: made by a newer version of trimtab (schema {}, known: {})",
                                   path_, version, kStudySchemaVersion));
  }
  const auto page_bytes = static_cast<uintmax_t>(database_->QueryInt("PRAGMA page_size"));
  if (std::filesystem::file_size(path_) % page_bytes != 0) ThrowDamaged("it was cut short");
  Statement check = database_->Prepare("PRAGMA quick_check(1)");
  if (!check.Step() || check.Text(0) != "ok") ThrowDamaged(check.Text(0));
  if (database_->QueryInt("SELECT count(*) FROM study") != 1) ThrowDamaged("it has no problem");
  return true;
}

void Study::Create(const Problem& problem) {
  database_->Transaction([&] {
    database_->Execute(kStudySchema);
    database_->Execute(fmt::format("PRAGMA application_id = {}", kStudyApplicationId));
    database_->Execute(fmt::format("PRAGMA user_version = {}", kStudySchemaVersion));
    const std::string text = ToJson(problem).dump();
    database_
        ->Prepare("INSERT INTO study VALUES (1, lower(hex(randomblob(8))), " TRIMTAB_SQL_NOW
                  ", ?1, ?2, ?3, ?4, 0, 0)")
        .Bind(1, text)
        .Bind(2, Hash(text))
        .Bind(3, ToJson(problem.cluster.profile).dump())
        .Bind(4, SearchGoal().objective)
        .Run();
  });
}

void Study::CheckProblem(const Problem& asked) const {
  const nlohmann::json asked_json = ToJson(asked);
  Statement query = database_->Prepare("SELECT problem_hash FROM study");
  if (query.Step() && query.Text(0) == Hash(asked_json.dump())) return;
  const nlohmann::json stored = problem();
  if (stored == asked_json) ThrowDamaged("the hash of its problem is wrong");
  throw InputError(
      fmt::format("{}: a study of another problem: {}", path_, Difference(stored, asked_json)));
}

void Study::NoteVersion(const std::string& component, const std::string& version) {
  Statement known =
      database_->Prepare("SELECT 1 FROM versions WHERE component = ?1 AND version = ?2");
  if (known.Bind(1, component).Bind(2, version).Step()) return;
  database_->Transaction([&] {
    database_->Prepare("INSERT INTO versions VALUES (?1, ?2, " TRIMTAB_SQL_NOW ")")
        .Bind(1, component)
        .Bind(2, version)
        .Run();
  });
}

nlohmann::json Study::JsonColumn(const char* column) const {
  Statement query = database_->Prepare(fmt::format("SELECT {} FROM study", column));
  if (!query.Step()) ThrowDamaged("it has no problem");
  nlohmann::json json = nlohmann::json::parse(query.Text(0), nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) ThrowDamaged(fmt::format("its {} is not JSON", column));
  return json;
}

nlohmann::json Study::problem() const { return JsonColumn("problem"); }

nlohmann::json Study::profile() const { return JsonColumn("profile"); }

SearchGoal Study::goal() const {
  Statement query = database_->Prepare("SELECT objective, prove_count FROM study");
  if (!query.Step()) ThrowDamaged("it has no goal");
  return {.objective = query.Text(0), .prove_count = query.Int(1)};
}

void Study::SetGoal(const SearchGoal& goal) {
  database_->Transaction([&] {
    database_->Prepare("UPDATE study SET objective = ?1, prove_count = ?2")
        .Bind(1, goal.objective)
        .Bind(2, goal.prove_count)
        .Run();
  });
}

bool Study::enumerated() const { return database_->QueryInt("SELECT enumerated FROM study") != 0; }

void Study::StorePrediction(int64_t candidate, const char* tier, const Prediction& prediction) {
  database_->Prepare("INSERT INTO predictions VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)")
      .Bind(1, candidate)
      .Bind(2, std::string(tier))
      .Bind(3, prediction.step_time_s)
      .Bind(4, prediction.tokens_per_s)
      .Bind(5, prediction.peak_mem_bytes)
      .Bind(6, prediction.trust)
      .Bind(7, ToJson(prediction).dump())
      .Run();
}

void Study::StoreCandidates(const std::vector<CandidateRecord>& candidates) {
  database_->Transaction([&] {
    Statement insert = database_->Prepare(
        "INSERT INTO candidates (key, run, pruned_by, pruned_why) VALUES (?1, ?2, ?3, ?4)");
    for (const CandidateRecord& candidate : candidates) {
      insert.Bind(1, candidate.key).Bind(2, ToJson(candidate.run).dump());
      if (!candidate.pruned_by.empty()) {
        insert.Bind(3, candidate.pruned_by).Bind(4, candidate.pruned_why);
      }
      insert.Run();
      if (candidate.closed_form) {
        StorePrediction(database_->last_insert_id(), "closed_form", *candidate.closed_form);
      }
    }
    database_->Execute("UPDATE study SET enumerated = 1");
  });
}

void Study::StoreDryRun(int64_t candidate, const Prediction& prediction,
                        const std::string& pruned_by, const std::string& pruned_why) {
  database_->Transaction([&] {
    StorePrediction(candidate, "dry_run", prediction);
    if (pruned_by.empty()) return;
    database_->Prepare("UPDATE candidates SET pruned_by = ?2, pruned_why = ?3 WHERE id = ?1")
        .Bind(1, candidate)
        .Bind(2, pruned_by)
        .Bind(3, pruned_why)
        .Run();
  });
}

Attempt Study::BeginAttempt(int64_t candidate) {
  Attempt attempt;
  database_->Transaction([&] {
    attempt.id = database_->QueryInt("SELECT coalesce(max(id), 0) + 1 FROM attempts");
    Statement uuid = database_->Prepare("SELECT uuid FROM study");
    uuid.Step();
    attempt.token = fmt::format("{}-{}", uuid.Text(0), attempt.id);
    database_
        ->Prepare("INSERT INTO attempts VALUES (?1, ?2, ?3, 'running', " TRIMTAB_SQL_NOW
                  ", NULL, NULL, '')")
        .Bind(1, attempt.id)
        .Bind(2, candidate)
        .Bind(3, attempt.token)
        .Run();
  });
  return attempt;
}

void Study::FinishAttempt(const Attempt& attempt, const TrialOutcome& outcome) {
  database_->Transaction([&] {
    database_->Prepare("UPDATE attempts SET exit_code = ?2 WHERE id = ?1")
        .Bind(1, attempt.id)
        .Bind(2, int64_t{outcome.exit_code})
        .Run();
    database_
        ->Prepare("UPDATE attempts SET state = ?2, message = ?3, finished_at = " TRIMTAB_SQL_NOW
                  " WHERE id = ?1 AND state = 'running'")
        .Bind(1, attempt.id)
        .Bind(2, Name(outcome.state))
        .Bind(3, outcome.message)
        .Run();
  });
}

/// False when the line is of another study, or in already.
bool Study::StoreResult(const TrialResult& result) {
  Statement query = database_->Prepare(
      "SELECT id FROM attempts WHERE token = ?1 AND state IN ('running', 'interrupted')");
  if (!query.Bind(1, result.attempt).Step()) return false;
  const int64_t attempt = query.Int(0);
  database_
      ->Prepare("UPDATE attempts SET state = ?2, message = ?3, finished_at = " TRIMTAB_SQL_NOW
                " WHERE id = ?1")
      .Bind(1, attempt)
      .Bind(2, Name(result.state))
      .Bind(3, result.message)
      .Run();
  if (!result.measurement) return true;
  const Measurement& measurement = *result.measurement;
  database_->Prepare("INSERT INTO measurements VALUES (?1, ?2, ?3, ?4, ?5, ?6)")
      .Bind(1, attempt)
      .Bind(2, measurement.step_time_s)
      .Bind(3, measurement.step_time_mad_s)
      .Bind(4, measurement.tokens_per_s)
      .Bind(5, measurement.peak_mem_bytes)
      .Bind(6, ToJson(measurement).dump())
      .Run();
  return true;
}

int64_t Study::IngestResults() {
  const std::vector<TrialResult> results = ReadResults(results_path());
  int64_t stored = 0;
  database_->Transaction([&] {
    for (const TrialResult& result : results) stored += StoreResult(result) ? 1 : 0;
  });
  return stored;
}

int64_t Study::Recover() {
  // Whoever holds the file is a worker that a killed driver left; its line may still come.
  const ResultsFile no_worker_left(results_path(), kWorkerWaitSeconds);
  const int64_t ingested = IngestResults();
  database_->Transaction([&] {
    database_->Execute("UPDATE attempts SET state = 'interrupted', finished_at = " TRIMTAB_SQL_NOW
                       ", message = 'the search was killed' WHERE state = 'running'");
  });
  return ingested;
}

std::vector<CandidateRecord> Study::Candidates() const {
  std::vector<CandidateRecord> candidates;
  Statement query = database_->Prepare(R"sql(
    SELECT c.id, c.key, c.run, c.pruned_by, c.pruned_why, closed.detail, dry.detail,
           (SELECT m.detail FROM measurements m JOIN attempts a ON a.id = m.attempt_id
            WHERE a.candidate_id = c.id ORDER BY a.id DESC LIMIT 1),
           (SELECT count(*) FROM attempts a WHERE a.candidate_id = c.id
            AND a.state NOT IN ('running', 'cancelled', 'interrupted')),
           last.state, last.message
    FROM candidates c
    LEFT JOIN predictions closed ON closed.candidate_id = c.id AND closed.tier = 'closed_form'
    LEFT JOIN predictions dry ON dry.candidate_id = c.id AND dry.tier = 'dry_run'
    LEFT JOIN attempts last ON last.id =
           (SELECT max(a.id) FROM attempts a WHERE a.candidate_id = c.id
            AND a.state NOT IN ('running', 'cancelled', 'interrupted'))
    ORDER BY c.id)sql");
  try {
    while (query.Step()) {
      CandidateRecord& candidate = candidates.emplace_back();
      candidate.id = query.Int(0);
      candidate.key = query.Text(1);
      const auto json = [&](int column) { return nlohmann::json::parse(query.Text(column)); };
      candidate.run = RunConfigFromJson(json(2), candidate.key);
      candidate.pruned_by = query.Text(3);
      candidate.pruned_why = query.Text(4);
      if (!query.IsNull(5)) candidate.closed_form = PredictionFromJson(json(5), candidate.key);
      if (!query.IsNull(6)) candidate.dry_run = PredictionFromJson(json(6), candidate.key);
      if (!query.IsNull(7)) candidate.measured = MeasurementFromJson(json(7), candidate.key);
      candidate.attempts = query.Int(8);
      candidate.last_state = query.Text(9);
      candidate.last_message = query.Text(10);
    }
  } catch (const nlohmann::json::exception& error) {
    ThrowDamaged(error.what());
  } catch (const InputError& error) {
    ThrowDamaged(error.what());
  }
  return candidates;
}

std::vector<std::pair<std::string, std::string>> Study::Versions() const {
  std::vector<std::pair<std::string, std::string>> versions;
  Statement query =
      database_->Prepare("SELECT component, version FROM versions ORDER BY first_used_at, 1");
  while (query.Step()) versions.emplace_back(query.Text(0), query.Text(1));
  return versions;
}

}  // namespace trimtab
