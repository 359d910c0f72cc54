#include "search/study/study_file.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "engine/base/error.h"
#include "search/study/sqlite.h"
#include "tests/engine/data/data_test_util.h"

namespace trimtab {
namespace {

TEST(StudyFile, AnEmptyFileIsAsGoodAsNone) {
  const std::string path = ScratchFolder() + "/study.db";
  EXPECT_TRUE(HoldsNoStudy(path));
  RequireNewOrResumed(path, /*resume=*/false);
  WriteBytes(path, "");
  EXPECT_TRUE(HoldsNoStudy(path));
  RequireNewOrResumed(path, /*resume=*/false);
}

TEST(StudyFile, WhatIsNoStudyIsNotTakenForOne) {
  const std::string folder = ScratchFolder();
  const std::string path = folder + "/text.db";
  WriteBytes(path, "a text");
  EXPECT_FALSE(HoldsNoStudy(path));
  EXPECT_THROW(RequireNewOrResumed(path, /*resume=*/false), StorageError);
  EXPECT_THROW(RequireNewOrResumed(folder, /*resume=*/true), StorageError);
  EXPECT_THROW(RequireNewOrResumed("", /*resume=*/true), UsageError);
}

/// What a killed search has left: a study of these tables, with or without a stored space.
void MakeStudy(const std::string& path, int enumerated, int candidates) {
  Database database(path, Access::kCreate);
  database.Execute("CREATE TABLE study (enumerated INTEGER)");
  database.Execute("CREATE TABLE candidates (id INTEGER)");
  database.Execute("CREATE TABLE attempts (id INTEGER)");
  database.Execute(fmt::format("INSERT INTO study VALUES ({})", enumerated));
  if (candidates > 0) database.Execute("INSERT INTO candidates VALUES (1)");
  database.Execute(fmt::format("PRAGMA application_id = {}", kStudyApplicationId));
}

// A search that ended before its space was stored is not in the way of the next one.
TEST(StudyFile, AnEmptyStudyIsAsGoodAsNone) {
  const std::string path = ScratchFolder() + "/study.db";
  MakeStudy(path, 0, 0);
  for (const char* suffix : {".results.jsonl", ".log"}) WriteBytes(path + suffix, "");
  {
    const Database in_use(path, Access::kWrite);
    EXPECT_FALSE(IsEmptyStudy(path)) << "another search makes it";
  }
  EXPECT_TRUE(IsEmptyStudy(path));
  RequireNewOrResumed(path, /*resume=*/false);
  RemoveEmptyStudy(path);
  for (const char* suffix : {"", "-journal", ".results.jsonl", ".log"}) {
    EXPECT_FALSE(std::filesystem::exists(path + suffix)) << suffix;
  }
}

TEST(StudyFile, AStudyWithAnythingInItStays) {
  for (const auto& [enumerated, candidates] : {std::pair(1, 0), std::pair(0, 1)}) {
    const std::string path = ScratchFolder() + "/study.db";
    MakeStudy(path, enumerated, candidates);
    EXPECT_FALSE(IsEmptyStudy(path));
    RemoveEmptyStudy(path);
    EXPECT_THROW(RequireNewOrResumed(path, /*resume=*/false), UsageError);
  }
  const std::string other = ScratchFolder() + "/study.db";
  WriteBytes(other, "a text, and beside it a journal");
  WriteBytes(other + "-journal", "x");
  EXPECT_FALSE(IsEmptyStudy(other));
  EXPECT_THROW(RequireNewOrResumed(other, /*resume=*/false), StorageError);
}

}  // namespace
}  // namespace trimtab
