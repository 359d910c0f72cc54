// Ranks under mpirun that go away, hang or take long: the others end, in time and saying why, or
// wait.
#include <gtest/gtest.h>

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "tests/engine/comm/mpirun.h"

namespace trimtab {
namespace {

class MpiLosses : public testing::Test {
 protected:
  void SetUp() override {
    const std::string reason = WhyNoMpirun();
    if (!reason.empty()) GTEST_SKIP() << reason;
  }
};

TEST_F(MpiLosses, WhoHoldsUpAChainIsNamed) {
  const MpirunResult result = RunUnderMpirun(
      3, "tests/engine/comm/mpi_scenarios hangs_at_the_end_of_a_chain", "TRIMTAB_COMM_TIMEOUT_S=2");
  EXPECT_NE(result.exit_code, 0);
  EXPECT_NE(result.output.find("rank 2 makes no progress: it has called nothing for "),
            std::string::npos)
      << result.output;
}

TEST_F(MpiLosses, ComputingOrParkedRanksAreNotLost) {
  const std::pair<const char*, const char*> runs[] = {
      {"computes_for_long", "TRIMTAB_HEARTBEAT_TIMEOUT_S=3"},
      {"waits_without_limit", "TRIMTAB_COMM_TIMEOUT_S=1"}};
  for (const auto& [scenario, limits] : runs) {
    const MpirunResult result =
        RunUnderMpirun(2, std::string("tests/engine/comm/mpi_scenarios ") + scenario, limits);
    EXPECT_EQ(result.exit_code, 0) << result.output;
  }
}

TEST_F(MpiLosses, LimitsMustBeNumbers) {
  const MpirunResult result = RunUnderMpirun(2, "tests/engine/comm/mpi_scenarios works",
                                             "TRIMTAB_HEARTBEAT_TIMEOUT_S=soon");
  EXPECT_NE(result.exit_code, 0);
}

struct Loss {
  const char* scenario;
  int ranks;
  const char* limits;
  std::string told;
};

void PrintTo(const Loss& loss, std::ostream* out) { *out << loss.scenario; }

class MpiLoss : public MpiLosses, public testing::WithParamInterface<Loss> {};

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

}  // namespace
}  // namespace trimtab
