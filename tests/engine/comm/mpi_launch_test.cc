#include "engine/comm/mpi_launch.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "engine/base/error.h"

namespace trimtab {
namespace {

class MpiLaunchTest : public testing::Test {
 protected:
  void SetUp() override {
    for (const char* name : kNames) unsetenv(name);
  }
  void TearDown() override { SetUp(); }

  static void Set(const char* rank, const char* size, const char* local_rank,
                  const char* local_size) {
    const char* values[] = {rank, size, local_rank, local_size};
    for (int i = 0; i < 4; ++i) setenv(kNames[i], values[i], 1);
  }

  static constexpr const char* kNames[] = {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
                                           "OMPI_COMM_WORLD_LOCAL_RANK",
                                           "OMPI_COMM_WORLD_LOCAL_SIZE"};
};

TEST_F(MpiLaunchTest, NothingWhereMpirunDidNotStartTheProcess) {
  EXPECT_FALSE(FindMpiLaunch().has_value());
  EXPECT_EQ(LaunchedRank(), 0);
}

TEST_F(MpiLaunchTest, ReadsWhatMpirunSays) {
  Set("5", "8", "1", "4");
  const auto launch = FindMpiLaunch();
  ASSERT_TRUE(launch.has_value());
  EXPECT_EQ(launch->rank, 5);
  EXPECT_EQ(launch->size, 8);
  EXPECT_EQ(launch->local_rank, 1);
  EXPECT_EQ(launch->local_size, 4);
  EXPECT_EQ(LaunchedRank(), 5);
}

TEST_F(MpiLaunchTest, RefusesWhatMakesNoSense) {
  Set("8", "8", "0", "4");
  EXPECT_THROW(FindMpiLaunch(), EnvironmentError);
  Set("1x", "8", "0", "4");
  EXPECT_THROW(FindMpiLaunch(), EnvironmentError);
  Set("1", "8", "0", "4");
  unsetenv("OMPI_COMM_WORLD_LOCAL_RANK");
  try {
    FindMpiLaunch();
    FAIL() << "nothing was thrown";
  } catch (const EnvironmentError& error) {
    EXPECT_STREQ(error.what(),
                 "OMPI_COMM_WORLD_LOCAL_RANK is '' under mpirun; expected a number, as "
                 "OMPI_COMM_WORLD_SIZE is set");
  }
}

}  // namespace
}  // namespace trimtab
