#include "search/study/study_file.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "engine/base/error.h"
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
  EXPECT_FALSE(IsServingStudy(path));
  EXPECT_THROW(RequireNewOrResumed(path, /*resume=*/false), StorageError);
  EXPECT_THROW(RequireNewOrResumed(folder, /*resume=*/true), StorageError);
  EXPECT_THROW(RequireNewOrResumed("", /*resume=*/true), UsageError);
}

}  // namespace
}  // namespace trimtab
