#include "engine/comm/mpi_launch.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/error.h"

namespace trimtab {
namespace {

class MpiLaunchTest : public testing::Test {
 protected:
  void SetUp() override {
    for (const char* name : kNames) unsetenv(name);
    for (const char* name : kStepNames) unsetenv(name);
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

  /// A process of a step of 9 on 3 nodes, as srun --mpi=pmix starts it.
  static void SetStep(const char* rank, const char* local_rank, const char* node) {
    const char* values[] = {"9", rank, local_rank, node, "4(x2),1", rank};
    for (int i = 0; i < 6; ++i) setenv(kStepNames[i], values[i], 1);
  }

  static constexpr const char* kStepNames[] = {
      "SLURM_STEP_NUM_TASKS",      "SLURM_PROCID", "SLURM_LOCALID", "SLURM_NODEID",
      "SLURM_STEP_TASKS_PER_NODE", "PMIX_RANK"};
};

TEST_F(MpiLaunchTest, ReadsWhatSrunSays) {
  SetStep("5", "1", "1");
  const auto launch = FindMpiLaunch();
  ASSERT_TRUE(launch.has_value());
  EXPECT_STREQ(launch->launcher, "srun");
  EXPECT_EQ(launch->rank, 5);
  EXPECT_EQ(launch->size, 9);
  EXPECT_EQ(launch->local_rank, 1);
  EXPECT_EQ(launch->local_size, 4);
  SetStep("8", "0", "2");
  EXPECT_EQ(FindMpiLaunch()->local_size, 1);
  // mpirun within a job starts its daemons with srun: then it is mpirun that counts.
  Set("0", "2", "0", "2");
  EXPECT_STREQ(FindMpiLaunch()->launcher, "mpirun");
}

TEST_F(MpiLaunchTest, AStepOfOneRunsThreads) {
  SetStep("0", "0", "0");
  setenv("SLURM_STEP_NUM_TASKS", "1", 1);
  EXPECT_FALSE(FindMpiLaunch().has_value());
}

TEST_F(MpiLaunchTest, RefusesAStepThatMakesNoSense) {
  SetStep("5", "1", "3");  // a fourth node
  EXPECT_THROW(FindMpiLaunch(), EnvironmentError);
  SetStep("9", "1", "1");
  EXPECT_THROW(FindMpiLaunch(), EnvironmentError);
  SetStep("8", "1", "2");
  EXPECT_THROW(FindMpiLaunch(), EnvironmentError);
  for (const char* tasks : {"", "4(x", "4(x99999999999)", "x,1"}) {
    SetStep("5", "1", "1");
    setenv("SLURM_STEP_TASKS_PER_NODE", tasks, 1);
    EXPECT_THROW(FindMpiLaunch(), EnvironmentError) << tasks;
  }
}

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

TEST_F(MpiLaunchTest, RefusesHalfOfIt) {
  setenv("OMPI_COMM_WORLD_RANK", "1", 1);
  try {
    FindMpiLaunch();
    FAIL() << "nothing was thrown";
  } catch (const EnvironmentError& error) {
    EXPECT_STREQ(
        error.what(),
        "OMPI_COMM_WORLD_RANK is set, but OMPI_COMM_WORLD_SIZE is not; expected what mpirun "
        "sets, or none of it");
  }
}

struct Environment {
  const char* name;
  std::vector<std::pair<const char*, const char*>> variables;
  std::string refused;  // begins the message; empty: nothing is refused
};

class OtherLaunchers : public testing::TestWithParam<Environment> {
 protected:
  void SetUp() override { Clear(); }
  void TearDown() override { Clear(); }
  static void Clear() {
    for (const char* name : {"WORLD_SIZE", "RANK", "LOCAL_RANK", "PMI_SIZE", "PMI_RANK",
                             "MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_RANK", "SLURM_STEP_NUM_TASKS",
                             "SLURM_PROCID", "SLURM_NTASKS", "SLURM_JOB_ID"}) {
      unsetenv(name);
    }
  }
};

TEST_P(OtherLaunchers, AreRefusedWhenThereAreSeveralProcesses) {
  for (const auto& [name, value] : GetParam().variables) setenv(name, value, 1);
  std::string message;
  try {
    RefuseOtherLaunchers();
  } catch (const EnvironmentError& error) {
    message = error.what();
  }
  EXPECT_EQ(message.substr(0, GetParam().refused.size()), GetParam().refused);
  EXPECT_EQ(message.empty(), GetParam().refused.empty()) << message;
}

INSTANTIATE_TEST_SUITE_P(
    Environments, OtherLaunchers,
    testing::Values(
        Environment{"Nothing", {}, ""},
        Environment{"Torchrun",
                    {{"WORLD_SIZE", "8"}, {"RANK", "3"}},
                    "torchrun says that this is process 3 of 8 (WORLD_SIZE=8), but every one"},
        Environment{"TorchrunOfOne", {{"WORLD_SIZE", "1"}, {"RANK", "0"}}, ""},
        Environment{"RankWithoutWorld", {{"RANK", "0"}}, "RANK is '0' and WORLD_SIZE is '', which"},
        Environment{"WorldWithoutRank", {{"WORLD_SIZE", "8"}}, "RANK is '' and WORLD_SIZE is '8'"},
        Environment{"NoNumber", {{"RANK", "x"}, {"WORLD_SIZE", "2"}}, "RANK is 'x'"},
        Environment{"OutsideTheWorld", {{"RANK", "2"}, {"WORLD_SIZE", "2"}}, "RANK is '2'"},
        Environment{"StepOfEight",
                    {{"SLURM_STEP_NUM_TASKS", "8"}, {"SLURM_PROCID", "0"}},
                    "srun says that this is process 0 of 8 (SLURM_STEP_NUM_TASKS=8)"},
        Environment{"StepOfOne", {{"SLURM_STEP_NUM_TASKS", "1"}, {"SLURM_PROCID", "0"}}, ""},
        Environment{"BatchScript",
                    {{"SLURM_JOB_ID", "7"}, {"SLURM_NTASKS", "64"}, {"SLURM_PROCID", "0"}},
                    ""},
        Environment{"Mpich",
                    {{"PMI_SIZE", "4"}, {"PMI_RANK", "1"}},
                    "an MPI that is not Open MPI says that this is process 1 of 4"}),
    [](const auto& param) { return param.param.name; });

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
