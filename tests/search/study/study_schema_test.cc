// Studies of another schema than today's are refused.
#include <gtest/gtest.h>

#include "engine/base/error.h"
#include "search/study/study.h"
#include "tests/search/search_fakes.h"
#include "tests/search/study/study_fixtures.h"

namespace trimtab {
namespace {

/// Returns the refusal of a study of another `schema`, read or resumed.
std::string RefusalOf(int schema) {
  const std::string path = ScratchPath("schema.db");
  Study::Open(path, TinyProblem(), {});
  Database(path, Access::kWrite).Execute(fmt::format("PRAGMA user_version = {}", schema));
  const std::string error = ErrorOf<StorageError>([&] { Study::OpenExisting(path); });
  EXPECT_EQ(ErrorOf<StorageError>([&] { Study::Open(path, TinyProblem(), {.resume = true}); }),
            error);
  return error;
}

TEST(StudySchema, AnotherSchemaIsRefused) {
  const std::string older = RefusalOf(7);
  EXPECT_NE(older.find("an older version of trimtab (schema 7, expected 9)"), std::string::npos)
      << older;
  const std::string newer = RefusalOf(99);
  EXPECT_NE(newer.find("a newer version of trimtab (schema 99, expected 9)"), std::string::npos)
      << newer;
}

TEST(StudySchema, AStoppedWalkLeavesItsGapUntilTheSpaceIsForgotten) {
  const std::string path = ScratchPath("gap.db");
  auto study = Study::Open(path, TinyProblem(), {});
  EXPECT_EQ(study->gap(), 0);
  study->StoreCandidates(SomeCandidates(), {{"unexplored", 7}}, 0.25);
  EXPECT_TRUE(study->enumerated());
  EXPECT_EQ(study->gap(), 0.25);
  study->ForgetSpace();
  EXPECT_FALSE(study->enumerated());
  EXPECT_EQ(study->gap(), 0);
  EXPECT_TRUE(study->Candidates().empty());
  EXPECT_TRUE(study->Pruned().empty());
  study->StoreCandidates(SomeCandidates());
  EXPECT_EQ(study->Candidates().size(), SomeCandidates().size());
}

TEST(StudySchema, WhatWasTriedIsNotForgotten) {
  auto study = Study::Open(ScratchPath("tried.db"), TinyProblem(), {});
  study->StoreCandidates(SomeCandidates(), {}, 0.25);
  study->BeginAttempt(1, study->BeginRound({1}));
  study->ForgetSpace();
  EXPECT_EQ(study->Candidates().size(), SomeCandidates().size());
  EXPECT_EQ(study->gap(), 0.25);
}

}  // namespace
}  // namespace trimtab
