#include "search/study/study.h"

#include <sqlite3.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "engine/base/error.h"
#include "engine/infer/serving_json.h"
#include "search/study/another_problem.h"
#include "search/study/study_schema.h"

namespace trimtab {
namespace {

/// 64-bit FNV-1a (Fowler, Noll, Vo), in hexadecimal.
std::string Hash(const std::string& text) {
  uint64_t hash = 0xcbf29ce484222325ULL;
  for (const char c : text) {
    hash ^= static_cast<unsigned char>(c);
    hash *= 0x100000001b3ULL;
  }
  return fmt::format("{:016x}", hash);
}

}  // namespace

Study::Study(std::unique_ptr<Database> database)
    : path_(database->path()), database_(std::move(database)) {}

Study::~Study() = default;

std::string NumericsOf(const CandidateRecord& candidate) {
  if (!candidate.serving) return std::string(Name(candidate.run.layout.numerics.precision));
  return fmt::format("{}/{}", Name(candidate.serving->weights),
                     CacheName(candidate.serving->cache));
}

RunConfig RunOfService(const ServingConfig& serving) {
  RunConfig run = RunOf(serving);
  run.layout.dp = serving.layout.dp;
  run.global_batch = 1;
  run.sequence_length = 1;
  run.memory_per_rank_bytes = serving.memory_per_rank_bytes;
  return run;
}

StudyProblem StudyProblemOf(const Problem& problem) {
  return {.workload = "training",
          .problem = ToJson(problem),
          .profile = ToJson(problem.cluster.profile)};
}

std::unique_ptr<Study> Study::Open(const std::string& path, const StudyProblem& problem,
                                   const StudyOptions& options) {
  RequireNewOrResumed(path, options.resume);
  if (!options.resume) RemoveEmptyStudy(path);
  auto database = std::make_unique<Database>(path, Access::kCreate);
  database->set_after_write(options.after_write);
  std::unique_ptr<Study> study(new Study(std::move(database)));
  if (!study->CheckSchema()) study->Create(problem, options.seed);
  study->CheckProblem(problem);
  study->state_ = ReadStudyState(*study->database_);
  if (!options.seed.empty() && study->seed() != options.seed) {
    throw UsageError(fmt::format(
        "--seed-study: {} was begun without it, or has taken another one's steps; a study keeps "
        "what it began with",
        path));
  }
  study->NoteVersion("trimtab", options.program_version);
  study->NoteVersion("sqlite", sqlite3_libversion());
  return study;
}

std::unique_ptr<Study> Study::OpenExisting(const std::string& path) {
  if (!std::filesystem::exists(path)) throw InputError(fmt::format("{}: no such study", path));
  RequireNewOrResumed(path, /*resume=*/true);
  std::unique_ptr<Study> study(new Study(std::make_unique<Database>(path, Access::kRead)));
  if (!study->CheckSchema()) throw InputError(fmt::format("{}: an empty file, not a study", path));
  study->state_ = ReadStudyState(*study->database_);
  return study;
}

void Study::ThrowDamaged(const std::string& detail) const { ThrowDamagedStudy(path_, detail); }

bool Study::CheckSchema() {
  const int64_t application = database_->QueryInt("PRAGMA application_id");
  const int64_t version = database_->QueryInt("PRAGMA user_version");
  const int64_t tables = database_->QueryInt("SELECT count(*) FROM sqlite_schema");
  if (application == 0 && version == 0 && tables == 0) {
    if (database_->QueryInt("PRAGMA page_count") == 0) return false;
    ThrowDamaged("almost nothing is left of it");
  }
  if (application != kStudyApplicationId) ThrowDamaged("a database of another program");
  if (version != kStudySchemaVersion) {
    throw StorageError(fmt::format("{}: made by {} version of trimtab (schema {}, expected {})",
                                   path_, version > kStudySchemaVersion ? "a newer" : "an older",
                                   version, kStudySchemaVersion));
  }
  Statement check = database_->Prepare("PRAGMA quick_check(1)");
  if (!check.Step() || check.Text(0) != "ok") ThrowDamaged(check.Text(0));
  if (database_->QueryInt("SELECT count(*) FROM study") != 1) ThrowDamaged("it has no problem");
  Statement stored = database_->Prepare("SELECT problem, problem_hash FROM study");
  if (stored.Step() && stored.Text(1) != Hash(stored.Text(0))) {
    ThrowDamaged("the hash of its problem is wrong");
  }
  return true;
}

void Study::Create(const StudyProblem& problem, const std::vector<Residual>& seed) {
  database_->Transaction([&] {
    database_->Execute(kRoundsSchema);
    database_->Execute(kPrunedSchema);
    database_->Execute(kStudySchema);
    database_->Execute(kAttemptsSchema);
    database_->Execute(kMeasurementsSchema);
    database_->Execute(fmt::format("PRAGMA application_id = {}", kStudyApplicationId));
    database_->Execute(fmt::format("PRAGMA user_version = {}", kStudySchemaVersion));
    const std::string text = problem.problem.dump();
    database_
        ->Prepare("INSERT INTO study VALUES (1, lower(hex(randomblob(8))), " TRIMTAB_SQL_NOW
                  ", ?8, ?1, ?2, ?3, ?4, 0, 0, ?5, ?6, ?7, '[]', '', 0)")
        .Bind(1, text)
        .Bind(2, Hash(text))
        .Bind(3, problem.profile.dump())
        .Bind(4, Name(SearchGoal().objective))
        .Bind(5, SearchGoal().indifference)
        .Bind(6, SearchGoal().most_rounds)
        .Bind(7, ToJson(seed).dump())
        .Bind(8, problem.workload)
        .Run();
  });
}

void Study::CheckProblem(const StudyProblem& asked) const {
  if (asked.workload != workload()) {
    throw InputError(fmt::format("{}: a study of a search for {}, not for {}", path_, workload(),
                                 asked.workload));
  }
  const nlohmann::json& asked_json = asked.problem;
  Statement query = database_->Prepare("SELECT problem_hash FROM study");
  if (query.Step() && query.Text(0) == Hash(asked_json.dump())) return;
  const nlohmann::json stored = problem();
  if (stored == asked_json) ThrowDamaged("the hash of its problem is wrong");
  ThrowAnotherProblem(path_, stored, asked_json);
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

std::string Study::workload() const {
  Statement query = database_->Prepare("SELECT workload FROM study");
  if (!query.Step()) ThrowDamaged("it has no workload");
  return query.Text(0);
}

std::optional<nlohmann::json> Study::FindMeasured(const std::string& key) const {
  Statement query = database_->Prepare("SELECT value FROM measured WHERE key = ?1");
  if (!query.Bind(1, key).Step()) return std::nullopt;
  nlohmann::json value = nlohmann::json::parse(query.Text(0), nullptr, /*allow_exceptions=*/false);
  if (value.is_discarded()) ThrowDamaged(fmt::format("{} is not JSON", key));
  return value;
}

void Study::AddMeasured(const std::string& key, const nlohmann::json& value) {
  database_->Transaction([&] {
    database_->Prepare("INSERT OR REPLACE INTO measured VALUES (?1, ?2)")
        .Bind(1, key)
        .Bind(2, value.dump())
        .Run();
  });
}

nlohmann::json Study::problem() const { return JsonColumn("problem"); }

nlohmann::json Study::profile() const {
  nlohmann::json profile = JsonColumn("profile");
  try {
    HardwareProfileFromJson(profile, "its profile");
  } catch (const InputError& error) {
    ThrowDamaged(error.what());
  }
  return profile;
}

std::vector<Residual> Study::seed() const { return ResidualsFromJson(JsonColumn("seed"), path_); }

nlohmann::json Study::recipes() const { return JsonColumn("recipes"); }

void Study::StoreRecipes(const nlohmann::json& places) {
  database_->Transaction(
      [&] { database_->Prepare("UPDATE study SET recipes = ?1").Bind(1, places.dump()).Run(); });
}

void Study::SetGoal(const SearchGoal& goal) {
  database_->Transaction([&] {
    database_
        ->Prepare(
            "UPDATE study SET objective = ?1, prove_count = ?2, indifference = ?3, "
            "most_rounds = ?4, stopped_by = ''")
        .Bind(1, Name(goal.objective))
        .Bind(2, goal.prove_count)
        .Bind(3, goal.indifference)
        .Bind(4, goal.most_rounds)
        .Run();
  });
  state_.goal = goal;
  state_.stopped_by.clear();
}

void Study::NoteStop(const std::string& why) {
  database_->Transaction(
      [&] { database_->Prepare("UPDATE study SET stopped_by = ?1").Bind(1, why).Run(); });
  state_.stopped_by = why;
}

}  // namespace trimtab
