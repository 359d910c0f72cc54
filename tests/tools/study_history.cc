#include "tests/tools/study_history.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "profiler/results.h"
#include "search/study/sqlite.h"

namespace trimtab {

StudyHistory ReadHistory(const std::string& study) {
  StudyHistory history;
  if (!std::filesystem::exists(study)) return history;
  Database database(study, Access::kRead);
  if (database.QueryInt("SELECT count(*) FROM sqlite_schema") == 0) return history;
  Statement query = database.Prepare("SELECT attempt_id, step_time_s FROM measurements");
  while (query.Step()) history[query.Int(0)] = query.Real(1);
  return history;
}

void ExpectGrown(const StudyHistory& before, const StudyHistory& now) {
  for (const auto& [attempt, seconds] : before) {
    const auto at = now.find(attempt);
    ASSERT_NE(at, now.end()) << "the visit of attempt " << attempt << " is lost";
    EXPECT_EQ(at->second, seconds) << "the visit of attempt " << attempt << " has changed";
  }
}

void ExpectWholeStudy(const std::string& study) {
  std::map<std::string, double> replayed;
  for (const TrialResult& result : ReadResults(study + ".results.jsonl")) {
    if (!result.measurement) continue;
    EXPECT_TRUE(replayed.emplace(result.attempt, result.measurement->step_time_s).second)
        << result.attempt << " was written twice";
  }
  Database database(study, Access::kRead);
  EXPECT_EQ(database.QueryInt("SELECT count(*) FROM attempts WHERE state = 'running'"), 0);
  EXPECT_EQ(database.QueryInt("SELECT count(*) FROM (SELECT 1 FROM attempts WHERE state = 'done' "
                              "GROUP BY candidate_id, round_id HAVING count(*) > 1)"),
            0);
  std::map<std::string, double> stored;
  Statement query = database.Prepare(
      "SELECT a.token, m.step_time_s FROM attempts a JOIN measurements m ON m.attempt_id = a.id "
      "WHERE a.state = 'done'");
  while (query.Step()) stored[query.Text(0)] = query.Real(1);
  EXPECT_EQ(stored, replayed);
}

}  // namespace trimtab
