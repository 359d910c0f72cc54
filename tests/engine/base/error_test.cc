#include "engine/base/error.h"

#include <gtest/gtest.h>

namespace trimtab {
namespace {

TEST(Error, EachClassHasItsExitCode) {
  EXPECT_EQ(UsageError("m").code(), ExitCode::kUsage);
  EXPECT_EQ(InputError("m").code(), ExitCode::kBadInput);
  EXPECT_EQ(InfeasibleError("m").code(), ExitCode::kInfeasible);
  EXPECT_EQ(OutOfMemoryError("m").code(), ExitCode::kInfeasible);
  EXPECT_EQ(EnvironmentError("m").code(), ExitCode::kEnvironment);
  EXPECT_EQ(StorageError("m").code(), ExitCode::kStorage);
  EXPECT_STREQ(StorageError("disk full").what(), "disk full");
}

TEST(ErrorDeathTest, AssertNamesConditionPlaceAndMessage) {
  const int heads = 3;
  EXPECT_DEATH(TRIMTAB_ASSERT(heads % 2 == 0, "{} heads", heads),
               "error_test.cc:[0-9]+: assertion failed: heads % 2 == 0: 3 heads");
  TRIMTAB_ASSERT(heads == 3, "not reached");
}

}  // namespace
}  // namespace trimtab
