// Ranks that are processes: the collectives' own tests once more under mpirun, and what becomes of
// runs that go wrong.
#include <gtest/gtest.h>

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
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
                {"rank 0: no progress for 1 s, the limit ($TRIMTAB_COMM_TIMEOUT_S): rank 0 calls "
                 "send of 8 fp32 to rank 1 in the world group, rank 1 calls send of 8 fp32 to rank "
                 "0 in the world group"}},
        Failure{"message_against_collective",
                ExitCode::kInternal,
                {"no progress for 1 s", "rank 0 calls send of 8 fp32 to rank 1",
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
                {"rank 0: rank 1 makes no progress: it has called nothing for 1 s, the limit "
                 "($TRIMTAB_COMM_TIMEOUT_S), and rank 0 calls barrier in the world group",
                 "rank 1 does not answer, so all are ended"}}),
    [](const auto& param) { return param.param.scenario; });

TEST_F(Mpi, WhoHoldsUpAChainIsNamed) {
  const MpirunResult result = RunUnderMpirun(
      3, "tests/engine/comm/mpi_scenarios hangs_at_the_end_of_a_chain", "TRIMTAB_COMM_TIMEOUT_S=2");
  EXPECT_NE(result.exit_code, 0);
  EXPECT_NE(result.output.find("rank 2 makes no progress: it has called nothing for 2 s"),
            std::string::npos)
      << result.output;
}

TEST_F(Mpi, ComputingOrParkedRanksAreNotLost) {
  const std::pair<const char*, const char*> runs[] = {
      {"computes_for_long", "TRIMTAB_HEARTBEAT_TIMEOUT_S=3"},
      {"waits_without_limit", "TRIMTAB_COMM_TIMEOUT_S=1"}};
  for (const auto& [scenario, limits] : runs) {
    const MpirunResult result =
        RunUnderMpirun(2, std::string("tests/engine/comm/mpi_scenarios ") + scenario, limits);
    EXPECT_EQ(result.exit_code, 0) << result.output;
  }
}

TEST_F(Mpi, LimitsMustBeNumbers) {
  const MpirunResult result = RunUnderMpirun(2, "tests/engine/comm/mpi_scenarios works",
                                             "TRIMTAB_HEARTBEAT_TIMEOUT_S=soon");
  EXPECT_NE(result.exit_code, 0);
}

/// Whether some process has `word` in its command line.
bool AnyProcessHas(const std::string& word) {
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    std::ifstream file(entry.path() / "cmdline", std::ios::binary);
    std::string line;
    std::getline(file, line);
    if (line.find(word) != std::string::npos) return true;
  }
  return false;
}

struct Loss {
  const char* scenario;
  int ranks;
  const char* limits;
  std::string told;
};

void PrintTo(const Loss& loss, std::ostream* out) { *out << loss.scenario; }

class MpiLoss : public Mpi, public testing::WithParamInterface<Loss> {};

TEST_P(MpiLoss, IsNamedAndEndsAllProcessesInTime) {
  const std::string mark = fmt::format("mark_of_{}", ::getpid());
  const auto begin = std::chrono::steady_clock::now();
  const MpirunResult result = RunUnderMpirun(
      GetParam().ranks,
      fmt::format("tests/engine/comm/mpi_scenarios {} {}", GetParam().scenario, mark),
      GetParam().limits);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  EXPECT_NE(result.exit_code, 0) << result.output;
  EXPECT_LT(took.count(), 30);
  EXPECT_NE(result.output.find(GetParam().told), std::string::npos) << result.output;
  EXPECT_FALSE(AnyProcessHas(mark)) << "a process is left";
}

constexpr char kSoon[] = "TRIMTAB_HEARTBEAT_TIMEOUT_S=3";

INSTANTIATE_TEST_SUITE_P(
    Losses, MpiLoss,
    testing::Values(Loss{"killed:1:wait", 2, kSoon, "rank 0: rank 1 has died"},
                    Loss{"killed:1:work", 3, kSoon, "rank 1 has died"},
                    Loss{"killed:0:wait", 3, kSoon, "rank 1: rank 0 has died"},
                    Loss{"killed:0:work", 2, kSoon, "rank 0 has died"},
                    // With the limit that users have.
                    Loss{"stopped:1:wait", 2, "", "rank 0: rank 1 has been silent for 10 s"},
                    Loss{"stopped:2:work", 3, kSoon, "rank 2 has been silent for 3 s"},
                    Loss{"stopped:0:wait", 3, kSoon, "rank 1: rank 0 has been silent for 3 s"},
                    Loss{"stopped:0:work", 2, kSoon, "rank 0 has been silent for 3 s"},
                    Loss{"leaves:1:wait", 2, kSoon, "rank 0: rank 1 has died"},
                    Loss{"exits:1:wait", 2, kSoon, "rank 0: rank 1 has died"},
                    Loss{"exits:1:work", 2, kSoon, "rank 1 has died"}),
    [](const auto& param) {
      std::string name = param.param.scenario;
      std::replace(name.begin(), name.end(), ':', '_');
      return name;
    });

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
