// Studies that older versions of the program made are read and resumed.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "engine/base/error.h"
#include "search/study/study.h"
#include "tests/search/search_fakes.h"
#include "tests/search/study/study_fixtures.h"

namespace trimtab {
namespace {

const StudyOptions kResume = {.resume = true};

/// Takes from a study what schema 7 brought.
void MakeSchemaSix(const std::string& path) {
  Database database(path, false);
  database.Execute("ALTER TABLE study DROP COLUMN stopped_by");
  database.Execute("PRAGMA user_version = 6");
}

/// And what schema 6 brought.
void MakeSchemaFive(const std::string& path) {
  MakeSchemaSix(path);
  Database database(path, false);
  database.Execute("ALTER TABLE study DROP COLUMN seed");
  database.Execute("ALTER TABLE study DROP COLUMN recipes");
  database.Execute("PRAGMA user_version = 5");
}

/// And what schema 5 brought.
void MakeSchemaFour(const std::string& path) {
  MakeSchemaFive(path);
  Database database(path, false);
  database.Execute("PRAGMA writable_schema = ON");
  database.Execute(
      "UPDATE sqlite_schema SET sql = replace(replace(replace(sql, '''numeric'', ', ''), "
      "'''lost'', ', ''), ', ''preempted''', '') WHERE name = 'attempts'");
  database.Execute("PRAGMA user_version = 4");
}

/// And what schema 4 brought.
void MakeSchemaThree(const std::string& path) {
  MakeSchemaFour(path);
  Database database(path, false);
  database.Execute("DROP TABLE pruned");
  database.Execute("PRAGMA user_version = 3");
}

/// And what schema 3 brought. Measurements had no blocks before.
void MakeSchemaTwo(const std::string& path) {
  MakeSchemaThree(path);
  Database database(path, false);
  database.Execute("UPDATE measurements SET detail = json_remove(detail, '$.blocks')");
  database.Execute("ALTER TABLE attempts DROP COLUMN round_id");
  database.Execute("ALTER TABLE study DROP COLUMN indifference");
  database.Execute("ALTER TABLE study DROP COLUMN most_rounds");
  database.Execute("DROP TABLE rounds");
  database.Execute("PRAGMA user_version = 2");
}

// As version 1 of the schema stored it: one precision, fp32 optimizer state.
TEST(StudySchema, AStudyOfTheFirstSchemaIsReadAndResumed) {
  const std::string path = ScratchPath("older.db");
  Study::Open(path, TinyProblem(), {})->StoreCandidates(SomeCandidates());
  MakeSchemaTwo(path);
  {
    nlohmann::json problem = ToJson(TinyProblem());
    problem.erase("precisions");
    problem.erase("optimizer_states");
    problem["precision"] = "fp32";
    Database database(path, false);
    database.Execute("PRAGMA user_version = 1");
    database.Execute(
        fmt::format("UPDATE study SET problem = '{}', problem_hash = 'old'", problem.dump()));
  }
  EXPECT_EQ(Study::OpenExisting(path)->problem(), ToJson(TinyProblem()));
  EXPECT_EQ(Database(path, false).QueryInt("PRAGMA user_version"), 1) << "reading changes nothing";

  Problem other = TinyProblem();
  other.precisions = {Precision::kBf16};
  EXPECT_NE(ErrorOf<InputError>([&] { Study::Open(path, other, kResume); }).find("precisions"),
            std::string::npos);
  EXPECT_EQ(Study::Open(path, TinyProblem(), kResume)->Candidates().size(), 3u);
  EXPECT_EQ(Database(path, false).QueryInt("PRAGMA user_version"), 7);
  Study::Open(path, TinyProblem(), kResume);
}

TEST(StudySchema, AStudyOfTheSecondSchemaKeepsItsMeasurements) {
  const std::string path = ScratchPath("second.db");
  const std::vector<CandidateRecord> candidates = SomeCandidates();
  {
    auto study = Study::Open(path, TinyProblem(), {});
    study->StoreCandidates(candidates);
    AppendDone(*study, study->BeginAttempt(1, study->BeginRound({1})), candidates[0].run);
    study->IngestResults();
  }
  MakeSchemaTwo(path);
  const double rate = FakeMeasurement(candidates[0].run).tokens_per_s;
  const auto check = [&](const Study& study) {
    EXPECT_TRUE(study.Rounds().empty());
    EXPECT_EQ(study.goal().indifference, 0.01);
    EXPECT_EQ(study.stopped_by(), "");
    const CandidateRecord first = study.Candidates()[0];
    EXPECT_TRUE(first.visits.empty()) << "it was measured outside any race";
    ASSERT_TRUE(first.measured.has_value());
    EXPECT_EQ(first.measured->tokens_per_s, rate);
  };
  check(*Study::OpenExisting(path));
  EXPECT_EQ(Database(path, false).QueryInt("PRAGMA user_version"), 2) << "reading changes nothing";
  auto study = Study::Open(path, TinyProblem(), kResume);
  check(*study);
  EXPECT_EQ(study->BeginRound({1, 2}), 1);
}

// It kept every candidate that a rule pruned as a row.
TEST(StudySchema, AStudyOfTheThirdSchemaKeepsWhatWasPruned) {
  const std::string path = ScratchPath("third.db");
  std::vector<CandidateRecord> candidates = SomeCandidates();
  candidates[1].pruned_by = "zero-requires-dp";
  candidates[1].pruned_why = "zero=1 needs dp of at least 2, and dp is 1";
  Study::Open(path, TinyProblem(), {})->StoreCandidates(candidates);
  MakeSchemaThree(path);
  EXPECT_TRUE(Study::OpenExisting(path)->Pruned().empty());
  auto study = Study::Open(path, TinyProblem(), kResume);
  EXPECT_TRUE(study->Pruned().empty());
  EXPECT_EQ(study->Candidates()[1].pruned_by, "zero-requires-dp");
}

// Its attempts were never numeric, lost or preempted, and its tables refuse them.
TEST(StudySchema, AStudyOfTheFourthSchemaLearnsNewStates) {
  const std::string path = ScratchPath("fourth.db");
  const std::vector<CandidateRecord> candidates = SomeCandidates();
  {
    auto study = Study::Open(path, TinyProblem(), {});
    study->StoreCandidates(candidates);
    AppendDone(*study, study->BeginAttempt(1, study->BeginRound({1})), candidates[0].run);
    study->IngestResults();
  }
  MakeSchemaFour(path);
  EXPECT_THROW(Database(path, false).Execute("UPDATE attempts SET state = 'lost'"), StorageError);
  auto study = Study::Open(path, TinyProblem(), kResume);
  EXPECT_EQ(study->Candidates()[0].visits.size(), 1u);
  study->FinishAttempt(study->BeginAttempt(2, 1), {.state = TrialState::kLost, .message = ""});
  EXPECT_EQ(study->Candidates()[1].losses, 1);
  EXPECT_EQ(study->Candidates()[1].failures, 0);
  EXPECT_EQ(study->Candidates()[1].last_state, "lost");
  study->FinishAttempt(study->BeginAttempt(2, 1), {.state = TrialState::kCrashed, .message = ""});
  study->FinishAttempt(study->BeginAttempt(2, 1), {.state = TrialState::kPreempted, .message = ""});
  EXPECT_EQ(study->Candidates()[1].last_state, "crashed") << "what was its own fault counts";
  EXPECT_EQ(study->Candidates()[1].losses, 2);
}

// It knew nothing of other studies.
TEST(StudySchema, AStudyOfTheFifthSchemaHasNoSeed) {
  const std::string path = ScratchPath("fifth.db");
  Study::Open(path, TinyProblem(), {})->StoreCandidates(SomeCandidates());
  MakeSchemaFive(path);
  EXPECT_TRUE(Study::OpenExisting(path)->seed().empty());
  EXPECT_TRUE(Study::OpenExisting(path)->recipes().empty());
  EXPECT_TRUE(Study::Open(path, TinyProblem(), kResume)->seed().empty());
}

TEST(StudySchema, ANewerSchemaIsRefused) {
  const std::string path = ScratchPath("newer.db");
  Study::Open(path, TinyProblem(), {});
  Database(path, false).Execute("PRAGMA user_version = 99");
  const std::string error = ErrorOf<StorageError>([&] { Study::OpenExisting(path); });
  EXPECT_NE(error.find("newer version of trimtab"), std::string::npos) << error;
}

}  // namespace
}  // namespace trimtab
