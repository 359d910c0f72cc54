// Kills the driver at every moment at which it might be killed, and resumes.

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "search/driver.h"
#include "search/study/sqlite.h"
#include "tests/search/search_fakes.h"

namespace trimtab {
namespace {

constexpr int kMostMoments = 500;

/// A study in memory, where syncing costs nothing: a killed process loses no page of the system's.
class KillTest : public ::testing::Test {
 protected:
  KillTest() {
    std::string pattern = "/dev/shm/trimtab_kill_test_XXXXXX";
    folder_ = mkdtemp(pattern.data()) != nullptr ? pattern : ScratchPath("kill");
    std::filesystem::create_directories(folder_);
  }
  ~KillTest() override { std::filesystem::remove_all(folder_); }

  /// The path of a study that does not exist yet.
  std::string FreshStudy() const {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
    return folder_ + "/study.db";
  }

 private:
  std::string folder_;
};

/// A search with few candidates: what matters is the number of moments.
TrainingSearch SmallSearch(const std::string& path) {
  TrainingSearch options = TinySearch(path);
  options.problem.max_ranks = 1;
  options.dry_run_count = 3;
  options.race.prove_count = 2;
  options.study.resume = true;
  return options;
}

/// In a child process: searches, and is killed at the `fatal`-th moment. True if it got that far.
bool KilledAt(const std::string& path, int fatal) {
  const pid_t child = fork();
  if (child == 0) {
    int moment = 0;
    const auto tick = [&] {
      if (++moment == fatal) kill(getpid(), SIGKILL);
    };
    TrainingSearch options = SmallSearch(path);
    options.study.after_write = tick;
    FakePredictor predictor;
    FakeRunner runner;
    runner.step_s = 1;  // a tie, which takes a race some rounds to see
    runner.tick = tick;
    SearchEvents events;
    RunSearch(options, predictor, runner, events);
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFSIGNALED(status) || WEXITSTATUS(status) == 0);
  return WIFSIGNALED(status);
}

void Resume(const std::string& path) {
  const TrainingSearch options = SmallSearch(path);
  FakePredictor predictor;
  FakeRunner runner;
  runner.step_s = 1;
  SearchEvents events;
  const SearchResult result = RunSearch(options, predictor, runner, events);
  EXPECT_FALSE(result.partial);
  EXPECT_GE(result.accuracy.proved, options.race.prove_count);
}

/// (candidate, round) of every visit in the study, in order.
std::vector<std::pair<int64_t, int64_t>> VisitsIn(const std::string& path) {
  Database database(path, Access::kRead);
  Statement query = database.Prepare(
      "SELECT a.candidate_id, a.round_id FROM measurements m JOIN attempts a ON a.id = "
      "m.attempt_id "
      "ORDER BY a.id");
  std::vector<std::pair<int64_t, int64_t>> visits;
  while (query.Step()) visits.emplace_back(query.Int(0), query.Int(1));
  return visits;
}

/// What a search that nobody kills visits.
std::vector<std::pair<int64_t, int64_t>> UndisturbedVisits() {
  const std::string path = ScratchPath("undisturbed.db");
  Resume(path);
  return VisitsIn(path);
}

/// The same visits in the same order as without a kill: none is lost, none is repeated.
void ExpectTheSameVisits(const std::string& path,
                         const std::vector<std::pair<int64_t, int64_t>>& undisturbed) {
  EXPECT_EQ(VisitsIn(path), undisturbed);
  Database database(path, Access::kRead);
  EXPECT_EQ(database.QueryInt("SELECT count(*) FROM attempts WHERE state = 'running'"), 0);
  EXPECT_EQ(database.QueryInt("SELECT count(*) FROM rounds WHERE speed IS NULL"), 0);
  EXPECT_EQ(ReadResults(path + ".results.jsonl").size(), undisturbed.size());
}

TEST_F(KillTest, AtAnyMomentLosesNothingAndRepeatsNothing) {
  const auto undisturbed = UndisturbedVisits();
  ASSERT_GT(undisturbed.size(), 4u);
  int moments = 0;
  for (int fatal = 1; fatal < kMostMoments; ++fatal) {
    SCOPED_TRACE(fatal);
    const std::string path = FreshStudy();
    const bool killed = KilledAt(path, fatal);
    Resume(path);
    ExpectTheSameVisits(path, undisturbed);
    if (HasFailure() || !killed) break;
    moments = fatal;
  }
  EXPECT_GT(moments, 30) << "the search has fewer moments than it should";
  EXPECT_LT(moments, kMostMoments - 1) << "the search never ended by itself";
}

TEST_F(KillTest, TwiceInARow) {
  const auto undisturbed = UndisturbedVisits();
  for (int fatal = 3; fatal < 30; fatal += 3) {
    SCOPED_TRACE(fatal);
    const std::string path = FreshStudy();
    KilledAt(path, fatal);
    KilledAt(path, fatal);
    Resume(path);
    ExpectTheSameVisits(path, undisturbed);
  }
}

}  // namespace
}  // namespace trimtab
