#include "search/study/study.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "engine/base/error.h"
#include "tests/search/search_fakes.h"
#include "tests/search/study/study_fixtures.h"

namespace trimtab {
namespace {

const StudyOptions kResume = {.resume = true};

TEST(Study, KeepsWhatIsStored) {
  const std::string path = ScratchPath("keeps.db");
  const std::vector<CandidateRecord> stored = SomeCandidates();
  const PrunedCounts pruned = {{"sp-requires-tp", 3}, {"global-batch-divisible", 10'000'000'000}};
  {
    auto study = Study::Open(path, TinyProblem(), {.program_version = "1"});
    EXPECT_FALSE(study->enumerated());
    study->StoreCandidates(stored, pruned);
    study->SetGoal({.objective = Objective::kMemory, .prove_count = 7});
    const Prediction dry_run = FakePredictor().DryRun(stored[1].run);
    study->StoreDryRun(2, dry_run, "memory", "too large after all");
  }
  auto study = Study::OpenExisting(path);
  EXPECT_TRUE(study->enumerated());
  EXPECT_EQ(study->Pruned(), pruned);
  EXPECT_EQ(study->goal().objective, Objective::kMemory);
  EXPECT_EQ(study->goal().prove_count, 7);
  EXPECT_EQ(study->problem(), ToJson(TinyProblem()));
  EXPECT_EQ(study->profile().at("name"), "fake-cpu");
  const std::vector<CandidateRecord> read = study->Candidates();
  ASSERT_EQ(read.size(), 3u);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(read[i].key, stored[i].key);
    EXPECT_EQ(read[i].run, stored[i].run);
    EXPECT_EQ(read[i].closed_form, stored[i].closed_form);
    EXPECT_EQ(read[i].failures, 0);
  }
  EXPECT_EQ(read[1].pruned_why, "too large after all");
  EXPECT_TRUE(read[1].dry_run.has_value());
  EXPECT_EQ(read[2].pruned_by, "memory");
}

TEST(Study, TakesEachResultInOnce) {
  auto study = Study::Open(ScratchPath("once.db"), TinyProblem(), {});
  const std::vector<CandidateRecord> candidates = SomeCandidates();
  study->StoreCandidates(candidates);
  const int64_t round = study->BeginRound({1});
  const Attempt attempt = study->BeginAttempt(1, round);
  AppendDone(*study, attempt, candidates[0].run);
  AppendDone(*study, attempt, candidates[0].run);
  AppendDone(*study, {.id = 1, .token = "another-study-1"}, candidates[0].run);
  std::ofstream(study->results_path(), std::ios::app) << R"({"schema_version": 1, "att)";
  EXPECT_EQ(study->IngestResults(), 1);
  EXPECT_EQ(study->IngestResults(), 0);
  study->FinishAttempt(attempt, {.state = TrialState::kCrashed, .message = "after its result"});
  const CandidateRecord read = study->Candidates()[0];
  EXPECT_EQ(read.failures, 0);
  ASSERT_EQ(read.visits.size(), 1u);
  EXPECT_EQ(read.visits[0].round, round);
  EXPECT_EQ(read.visits[0].measurement.blocks, FakeMeasurement(candidates[0].run).blocks);
  const Measurement& measured = read.visits[0].measurement;
  EXPECT_EQ(measured.tokens_per_s, FakeMeasurement(candidates[0].run).tokens_per_s);
  EXPECT_EQ(measured.losses, (std::vector<double>{5.0, 4.5}));
}

TEST(Study, AResultThatIsThereWhenItsAttemptEndsCounts) {
  auto study = Study::Open(ScratchPath("ends.db"), TinyProblem(), {});
  const std::vector<CandidateRecord> candidates = SomeCandidates();
  study->StoreCandidates(candidates);
  const Attempt attempt = study->BeginAttempt(1, study->BeginRound({1}));
  AppendDone(*study, attempt, candidates[0].run);
  study->FinishAttempt(attempt, {.state = TrialState::kCrashed, .message = "after its result"});
  EXPECT_EQ(study->Candidates()[0].failures, 0);
  EXPECT_EQ(study->Candidates()[0].visits.size(), 1u);
  EXPECT_EQ(study->IngestResults(), 0);
}

TEST(Study, RecoversFinishedAttemptsAndForgetsUnfinishedOnes) {
  const std::string path = ScratchPath("recovers.db");
  const std::vector<CandidateRecord> candidates = SomeCandidates();
  {
    auto study = Study::Open(path, TinyProblem(), {});
    study->StoreCandidates(candidates);
    const int64_t round = study->BeginRound({2, 1});
    AppendDone(*study, study->BeginAttempt(1, round), candidates[0].run);
    study->BeginAttempt(2, round);
  }
  auto study = Study::Open(path, TinyProblem(), kResume);
  EXPECT_EQ(study->Recover(), 1);
  EXPECT_EQ(study->Recover(), 0);
  EXPECT_EQ(study->Candidates()[0].visits.size(), 1u);
  EXPECT_EQ(study->Candidates()[1].failures, 0);
  EXPECT_EQ(study->BeginAttempt(2, 1).id, 3);
}

TEST(Study, KeepsRoundsAndTheirSpeed) {
  const std::string path = ScratchPath("rounds.db");
  {
    auto study = Study::Open(path, TinyProblem(), {});
    study->StoreCandidates(SomeCandidates());
    EXPECT_EQ(study->BeginRound({3, 1, 2}), 1);
    study->FinishRound(1, {.median = 0.7, .low = 0.4, .high = 0.9});
    EXPECT_EQ(study->BeginRound({2}), 2);
  }
  const std::vector<RoundRecord> rounds = Study::OpenExisting(path)->Rounds();
  ASSERT_EQ(rounds.size(), 2u);
  EXPECT_EQ(rounds[0].candidates, (std::vector<int64_t>{3, 1, 2}));
  EXPECT_GE(rounds[0].at_s, 0);
  ASSERT_TRUE(rounds[0].speed.has_value());
  EXPECT_EQ(rounds[0].speed->low, 0.4);
  EXPECT_EQ(rounds[0].speed->median, 0.7);
  EXPECT_EQ(rounds[0].speed->high, 0.9);
  EXPECT_EQ(rounds[1].id, 2);
  EXPECT_FALSE(rounds[1].speed.has_value());
}

TEST(Study, AnExistingFileNeedsResume) {
  const std::string path = ScratchPath("exists.db");
  Study::Open(path, TinyProblem(), {})->StoreCandidates(SomeCandidates());
  const std::string error = ErrorOf<UsageError>([&] { Study::Open(path, TinyProblem(), {}); });
  EXPECT_NE(error.find("--resume"), std::string::npos) << error;
  Study::Open(path, TinyProblem(), kResume);
}

TEST(Study, AnotherProblemIsRefusedWithTheDifference) {
  const std::string path = ScratchPath("other.db");
  Study::Open(path, TinyProblem(), {});
  Problem other = TinyProblem();
  other.global_batch = 16;
  const std::string error = ErrorOf<InputError>([&] { Study::Open(path, other, kResume); });
  EXPECT_EQ(error,
            path + ": a study of another problem: global_batch is 4 in the study and 16 now");
}

TEST(Study, ASecondDriverIsRefused) {
  const std::string path = ScratchPath("locked.db");
  auto first = Study::Open(path, TinyProblem(), {});
  const std::string error =
      ErrorOf<StorageError>([&] { Study::Open(path, TinyProblem(), kResume); });
  EXPECT_EQ(
      error.find(fmt::format("{}: in use by another trimtab, process {} on ", path, getpid())), 0U)
      << error;
}

TEST(Study, ASecondDriverIsToldWhoHasTheStudy) {
  const std::string path = ScratchPath("owned.db");
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t owner = fork();
  if (owner == 0) {
    const auto study = Study::Open(path, TinyProblem(), {});
    [[maybe_unused]] const auto written = write(ready[1], "x", 1);
    pause();
    _exit(0);
  }
  char signal = 0;
  ASSERT_EQ(read(ready[0], &signal, 1), 1);
  const std::string error =
      ErrorOf<StorageError>([&] { Study::Open(path, TinyProblem(), kResume); });
  EXPECT_EQ(error.find(fmt::format("{}: in use by another trimtab, process {} on ", path, owner)),
            0U)
      << error;
  kill(owner, SIGKILL);
  waitpid(owner, nullptr, 0);
  EXPECT_NE(Study::Open(path, TinyProblem(), kResume), nullptr) << "a lock dies with its owner";
}

// One process writes without a pause, another reads; then the writer is killed in the middle of it.
TEST(Study, IsReadWhileItIsWritten) {
  const std::string path = ScratchPath("live.db");
  { Study::Open(path, TinyProblem(), {})->StoreCandidates(SomeCandidates()); }
  const pid_t writer = fork();
  if (writer == 0) {
    const auto study = Study::Open(path, TinyProblem(), kResume);
    while (true) study->FinishRound(study->BeginRound({1, 2}), {.median = 1, .low = 1, .high = 1});
  }
  size_t rounds = 0;
  for (int read = 0; read < 1000 && rounds < 60; ++read) {
    const auto study = Study::OpenExisting(path);
    EXPECT_EQ(study->Candidates().size(), 3U);
    const std::vector<RoundRecord> now = study->Rounds();
    EXPECT_GE(now.size(), rounds);
    for (size_t i = 0; i + 1 < now.size(); ++i) EXPECT_TRUE(now[i].speed) << "round " << i;
    rounds = now.size();
  }
  EXPECT_GE(rounds, 60U);
  kill(writer, SIGKILL);
  waitpid(writer, nullptr, 0);
  EXPECT_GE(Study::OpenExisting(path)->Rounds().size(), rounds);
  const auto resumed = Study::Open(path, TinyProblem(), kResume);
  EXPECT_GE(resumed->Rounds().size(), rounds);
  resumed->BeginRound({3});
  EXPECT_EQ(Study::OpenExisting(path)->Rounds().size(), resumed->Rounds().size());
}

TEST(Study, KeepsTheStepsItBeganWith) {
  const std::string path = ScratchPath("seeded.db");
  const std::vector<Residual> seed = {
      {"bf16", {.mode = {4, 2}, .predicted_s = 0.5, .measured_s = 0.75}}};
  Study::Open(path, TinyProblem(), {.seed = seed});
  EXPECT_EQ(Study::OpenExisting(path)->seed(), seed);
  EXPECT_EQ(Study::Open(path, TinyProblem(), kResume)->seed(), seed);
  EXPECT_EQ(Study::Open(path, TinyProblem(), {.resume = true, .seed = seed})->seed(), seed);
  std::vector<Residual> other = seed;
  other[0].sample.measured_s = 0.8;
  const std::string error = ErrorOf<UsageError>(
      [&] { Study::Open(path, TinyProblem(), {.resume = true, .seed = other}); });
  EXPECT_NE(error.find("a study keeps what it began with"), std::string::npos) << error;
}

TEST(Study, ADamagedSeedIsRefused) {
  const std::string path = ScratchPath("damaged_seed.db");
  Study::Open(path, TinyProblem(), {});
  for (const char* text : {"x", "[1]", R"([{"mode": "1x1"}])",
                           R"([{"mode": "1x1", "numerics": "fp32", "predicted_s": 0,
                               "measured_s": 1}])"}) {
    Database(path, Access::kWrite).Execute(fmt::format("UPDATE study SET seed = '{}'", text));
    EXPECT_THROW(Study::OpenExisting(path)->seed(), StorageError) << text;
  }
}

TEST(Study, FiguresThatNobodyMeasuredAreRefused) {
  const std::string path = ScratchPath("edited.db");
  {
    auto study = Study::Open(path, TinyProblem(), {});
    const std::vector<CandidateRecord> candidates = SomeCandidates();
    study->StoreCandidates(candidates);
    AppendDone(*study, study->BeginAttempt(1, study->BeginRound({1})), candidates[0].run);
    study->IngestResults();
  }
  const auto edited = [&](const std::string& table, const std::string& field,
                          const std::string& value) {
    const std::string copy = ScratchPath("edited_now.db");
    std::filesystem::copy_file(path, copy, std::filesystem::copy_options::overwrite_existing);
    Database(copy, Access::kWrite)
        .Execute(fmt::format("UPDATE {} SET detail = json_set(detail, '$.{}', {})", table, field,
                             value));
    return ErrorOf<StorageError>([&] { Study::OpenExisting(copy)->Candidates(); });
  };
  for (const char* table : {"measurements", "predictions"}) {
    for (const char* field : {"step_time_s", "tokens_per_s", "peak_mem_bytes"}) {
      for (const char* value : {"-1", "null", "'fast'"}) {
        const std::string error = edited(table, field, value);
        EXPECT_NE(error.find(field), std::string::npos) << table << " " << value << ": " << error;
      }
    }
    EXPECT_NE(edited(table, "step_time_s", "0"), "no error") << table;
  }
}

TEST(Study, WhatRefersToNothingIsRefused) {
  const std::string path = ScratchPath("dangling.db");
  {
    auto study = Study::Open(path, TinyProblem(), {});
    study->StoreCandidates(SomeCandidates());
    study->FinishRound(study->BeginRound({1}), {.median = 1, .low = 1, .high = 1});
  }
  for (const char* visited : {"[99]", "[0]", "[1.5]"}) {
    Database(path, Access::kWrite)
        .Execute(fmt::format("UPDATE rounds SET candidates = '{}'", visited));
    EXPECT_THROW(Study::OpenExisting(path)->Rounds(), StorageError) << visited;
  }
  Database(path, Access::kWrite).Execute("UPDATE rounds SET candidates = '[1]', speed = -1");
  EXPECT_THROW(Study::OpenExisting(path)->Rounds(), StorageError);
  Database(path, Access::kWrite).Execute("DELETE FROM predictions");
  EXPECT_THROW(Study::OpenExisting(path)->Candidates(), StorageError);
}

TEST(Study, FilesThatAreNoStudyAreRefused) {
  const std::string path = ScratchPath("garbage.db");
  EXPECT_THROW(Study::OpenExisting(path), InputError);
  std::ofstream(path) << std::string(5000, 'x');
  EXPECT_THROW(Study::OpenExisting(path), StorageError);
  EXPECT_THROW(Study::Open(path, TinyProblem(), kResume), StorageError);
  std::filesystem::remove(path);
  Database(path, Access::kCreate).Execute("CREATE TABLE theirs (x INTEGER)");
  EXPECT_THROW(Study::Open(path, TinyProblem(), kResume), StorageError);
}

TEST(Study, WhatIsNoPlainFileIsRefused) {
  EXPECT_THROW(Study::Open("", TinyProblem(), {}), UsageError);
  EXPECT_THROW(Study::Open("/dev/zero", TinyProblem(), kResume), StorageError);
  EXPECT_THROW(Study::Open(testing::TempDir(), TinyProblem(), {}), StorageError);
  EXPECT_THROW(Study::OpenExisting("/dev/zero"), StorageError);
}

TEST(Study, AProblemThatWasChangedIsNoticed) {
  const std::string path = ScratchPath("changed.db");
  Study::Open(path, TinyProblem(), {});
  Database(path, Access::kWrite).Execute("UPDATE study SET problem = '{}'");
  EXPECT_THROW(Study::OpenExisting(path), StorageError);
}

TEST(Study, EveryTruncationIsNoticedOrHarmless) {
  const std::string path = ScratchPath("whole.db");
  const std::string cut = ScratchPath("cut.db");
  Study::Open(path, TinyProblem(), {})->StoreCandidates(SomeCandidates());
  const auto size = std::filesystem::file_size(path);
  int64_t noticed = 0;
  int64_t cuts = 0;
  for (uintmax_t keep = 1; keep < size; keep += 1009) {
    std::filesystem::copy_file(path, cut, std::filesystem::copy_options::overwrite_existing);
    std::filesystem::resize_file(cut, keep);
    ++cuts;
    try {
      EXPECT_EQ(Study::OpenExisting(cut)->Candidates().size(), 3u) << "kept " << keep;
    } catch (const StorageError&) {
      ++noticed;
    }
  }
  EXPECT_EQ(noticed, cuts);
}

/// With a limit on the size of files, writes fail as on a full disk.
TEST(Study, AFailedWriteLosesNothingStored) {
  const std::string path = ScratchPath("full.db");
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    signal(SIGXFSZ, SIG_IGN);
    int code = 0;
    try {
      auto study = Study::Open(path, TinyProblem(), {});
      study->StoreCandidates(SomeCandidates());
      const auto size = static_cast<rlim_t>(std::filesystem::file_size(path));
      const rlimit limit = {size, size};
      setrlimit(RLIMIT_FSIZE, &limit);
      for (int i = 0; i < 10000; ++i) study->BeginRound({1});
      code = 1;
    } catch (const StorageError&) {
      code = 42;
    }
    _exit(code);
  }
  int status = 0;
  waitpid(child, &status, 0);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 42);
  auto study = Study::Open(path, TinyProblem(), kResume);
  EXPECT_EQ(study->Candidates().size(), 3u);
  study->BeginRound({1});
}

}  // namespace
}  // namespace trimtab
