// Ranks that are processes: the collectives' own tests once more under mpirun, and what becomes of
// runs that go wrong.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>

#include "engine/base/error.h"
#include "engine/comm/mpi/mpi_context.h"
#include "engine/device/cuda/loader.h"
#include "tests/engine/comm/mpirun.h"

namespace trimtab {
namespace {

class Mpi : public testing::Test {
 protected:
  void SetUp() override {
    const std::string reason = WhyNoMpirun();
    if (!reason.empty()) GTEST_SKIP() << reason;
  }
};

TEST_F(Mpi, CollectivesGiveTheBitsOfThreads) {
  const MpirunResult result = RunUnderMpirun(
      4, "tests/engine/comm/collectives_test --gtest_filter='Processes/*' --gtest_brief=1");
  EXPECT_EQ(result.exit_code, 0) << result.output;
  EXPECT_NE(result.output.find("[  PASSED  ]"), std::string::npos) << result.output;
}

TEST_F(Mpi, MessagesUnderWay) {
  const MpirunResult result = RunUnderMpirun(
      4, "tests/engine/comm/messages_test --gtest_filter='Processes/*' --gtest_brief=1");
  EXPECT_EQ(result.exit_code, 0) << result.output;
  EXPECT_NE(result.output.find("[  PASSED  ]"), std::string::npos) << result.output;
}

// NCCL itself, between two processes that share the GPU: slow, and good for this test only.
TEST_F(Mpi, NcclCollectivesOfTwoProcessesOnOneGpu) {
  if (FindCudaDevices().device_count == 0) GTEST_SKIP() << FindCudaDevices().reason;
  const MpirunResult result = RunUnderMpirun(
      2, "tests/engine/comm/collectives_test --gtest_filter='CudaProcesses/*' --gtest_brief=1",
      "NCCL_NET=Socket NCCL_SOCKET_IFNAME=lo");
  EXPECT_EQ(result.exit_code, 0) << result.output;
  EXPECT_EQ(result.output.find("SKIPPED"), std::string::npos) << result.output;
}

TEST_F(Mpi, NcclMessagesOfTwoProcessesOnOneGpu) {
  if (FindCudaDevices().device_count == 0) GTEST_SKIP() << FindCudaDevices().reason;
  const MpirunResult result = RunUnderMpirun(
      2, "tests/engine/comm/messages_test --gtest_filter='CudaProcesses/*' --gtest_brief=1",
      "NCCL_NET=Socket NCCL_SOCKET_IFNAME=lo");
  EXPECT_EQ(result.exit_code, 0) << result.output;
  EXPECT_NE(result.output.find("[  PASSED  ]"), std::string::npos) << result.output;
}

TEST_F(Mpi, EveryLayoutOfARunThatWorks) {
  for (const int ranks : {1, 2, 3}) {
    const MpirunResult result = RunUnderMpirun(ranks, "tests/engine/comm/mpi_scenarios works");
    EXPECT_EQ(result.exit_code, 0) << result.output;
    for (int rank = 0; rank < ranks; ++rank) {
      EXPECT_NE(result.output.find(fmt::format("rank {}: done\n", rank)), std::string::npos);
    }
  }
}

/// The largest number that ranks printed as "rank R: WHAT N"; -1 where none did.
int64_t LargestCount(const std::string& output, const std::string& what) {
  int64_t largest = -1;
  const std::string word = ": " + what + " ";
  for (size_t at = output.find(word); at != std::string::npos; at = output.find(word, at + 1)) {
    largest = std::max(largest, int64_t{std::stol(output.substr(at + word.size()))});
  }
  return largest;
}

// Sends and receives of the busiest rank grow as the logarithm of the number of ranks.
TEST_F(Mpi, CollectivesTakeAFewMessagesOfEachRank) {
  for (const auto& [ranks, rounds] : {std::pair{2, 1}, {3, 2}, {4, 2}, {8, 3}}) {
    const MpirunResult result = RunUnderMpirun(ranks, "tests/engine/comm/mpi_scenarios requests");
    ASSERT_EQ(result.exit_code, 0) << result.output;
    EXPECT_EQ(LargestCount(result.output, "barrier"), 2 * rounds) << ranks;
    EXPECT_EQ(LargestCount(result.output, "all_reduce"), 4 * rounds) << ranks;
    EXPECT_EQ(LargestCount(result.output, "all_gather"), 4 * rounds) << ranks;
    EXPECT_EQ(LargestCount(result.output, "broadcast"), 3 * rounds) << ranks;
  }
}

// Most ranks compare their call with ranks that call the same, and learn of the difference.
TEST_F(Mpi, OneCallThatDoesNotFitReachesEveryRank) {
  for (const int ranks : {3, 5, 8}) {
    const MpirunResult result = RunUnderMpirun(ranks, "tests/engine/comm/mpi_scenarios sizes");
    EXPECT_EQ(result.exit_code, static_cast<int>(ExitCode::kInternal)) << result.output;
    for (int rank = 0; rank < ranks; ++rank) {
      EXPECT_NE(result.output.find(fmt::format(
                    "rank {}: world group of {} ranks: rank 0 calls all_reduce(sum) of 8 fp32, but "
                    "rank ",
                    rank, ranks)),
                std::string::npos)
          << result.output;
    }
  }
}

struct Failure {
  const char* scenario;
  ExitCode code;
  std::vector<std::string> lines;  // all of them are in the output
};

void PrintTo(const Failure& failure, std::ostream* out) { *out << failure.scenario; }

class MpiFailure : public Mpi, public testing::WithParamInterface<Failure> {};

TEST_P(MpiFailure, ReachesEveryRankAndEndsTheRun) {
  const MpirunResult result =
      RunUnderMpirun(2, std::string("tests/engine/comm/mpi_scenarios ") + GetParam().scenario,
                     "TRIMTAB_COMM_TIMEOUT_S=1");
  EXPECT_EQ(result.exit_code, static_cast<int>(GetParam().code)) << result.output;
  for (const std::string& line : GetParam().lines) {
    EXPECT_NE(result.output.find(line), std::string::npos) << line << "\n" << result.output;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Scenarios, MpiFailure,
    testing::Values(
        Failure{"sizes",
                ExitCode::kInternal,
                {"rank 0: world group of 2 ranks: rank 0 calls all_reduce(sum) of 8 fp32, but rank "
                 "1 calls all_reduce(sum) of 9 fp32",
                 "rank 1: world group of 2 ranks: rank 0 calls"}},
        Failure{"kinds",
                ExitCode::kInternal,
                {"rank 0 calls all_reduce(sum) of 8 fp32, but rank 1 calls broadcast of 8 fp32 "
                 "from rank 0"}},
        Failure{"two_sends",
                ExitCode::kInternal,
                {"rank 0: no progress for longer than 1 s ($TRIMTAB_COMM_TIMEOUT_S): rank 0 calls "
                 "send of 8 fp32 to rank 1 in the world group, rank 1 calls send of 8 fp32 to rank "
                 "0 in the world group"}},
        Failure{"message_against_collective",
                ExitCode::kInternal,
                {"no progress for longer than 1 s", "rank 0 calls send of 8 fp32 to rank 1",
                 "rank 1 calls all_reduce(sum) of 8 fp32"}},
        Failure{
            "asynchronous_sizes",
            ExitCode::kInternal,
            {"rank 0: world group of 2 ranks: rank 0 calls send of 8 fp32 to rank 1, but rank 1 "
             "calls recv of 9 fp32 from rank 0",
             "rank 1: world group of 2 ranks: rank 0 calls send"}},
        Failure{"receives_too_much",
                ExitCode::kInternal,
                {"rank 0 calls recv of 8 fp32 from rank 1 in the world group, but rank 1 has "
                 "finished"}},
        Failure{"throws_with_messages_under_way",
                ExitCode::kStorage,
                {"rank 0: disk full", "rank 1: disk full"}},
        Failure{"groups",
                ExitCode::kInternal,
                {"rank 0: rank 0 calls barrier in the world group, but rank 1 calls barrier in the "
                 "dp group"}},
        Failure{"finishes_early",
                ExitCode::kInternal,
                {"rank 0: rank 0 calls all_reduce(sum) of 8 fp32 in the world group, but rank 1 "
                 "has finished"}},
        Failure{"throws", ExitCode::kStorage, {"rank 0: disk full", "rank 1: disk full"}},
        Failure{"aborts", ExitCode::kInternal, {"rank 0: no more paper", "rank 1: no more paper"}},
        Failure{"out_of_memory", ExitCode::kInfeasible, {"rank 0: out of memory"}},
        Failure{"hangs",
                ExitCode::kInternal,
                {"rank 0: rank 1 makes no progress: it has called nothing for ",
                 "and rank 0 calls barrier in the world group, for longer than 1 s "
                 "($TRIMTAB_COMM_TIMEOUT_S)",
                 "rank 1 does not answer, so all are ended"}}),
    [](const auto& param) { return param.param.scenario; });

TEST(MpiContext, RefusesAWorldOfAnotherSize) {
  try {
    CheckMpiWorldSize(3, {.tp = 2});
    FAIL() << "nothing was thrown";
  } catch (const UsageError& error) {
    EXPECT_STREQ(error.what(),
                 "mpirun started 3 processes, but the layout tp=2,dp=1,mbs=1 has 2 ranks; expected "
                 "mpirun -n 2");
  }
}

TEST(MpiContext, NeedsMpirun) { EXPECT_THROW(MpiWorld::OfProcess(), EnvironmentError); }

}  // namespace
}  // namespace trimtab
