// Messages that a training step costs between all of its ranks, besides those of its groups.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <utility>

#include "tests/engine/comm/mpirun.h"

namespace trimtab {
namespace {

TEST(MpiRequests, AStepHasOneExchangeBetweenAllRanks) {
  const std::string reason = WhyNoMpirun();
  if (!reason.empty()) GTEST_SKIP() << reason;
  for (const auto& [ranks, rounds] : {std::pair{2, 1}, {4, 2}, {8, 3}}) {
    const MpirunResult result = RunUnderMpirun(
        ranks, fmt::format("tests/engine/train/mpi_requests_run dp={},mbs=1", ranks));
    ASSERT_EQ(result.exit_code, 0) << result.output;
    for (const int step : {2, 3, 4}) {
      // A send and a receive a round, of calls and of what is told.
      EXPECT_NE(result.output.find(fmt::format("step {}: {}\n", step, 4 * rounds)),
                std::string::npos)
          << ranks << " ranks\n"
          << result.output;
    }
  }
}

}  // namespace
}  // namespace trimtab
