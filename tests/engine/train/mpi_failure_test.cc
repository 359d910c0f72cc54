// Processes under mpirun that go away in the middle of the messages of any group: the others end,
// in time and saying why.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <optional>
#include <thread>
#include <tuple>

#include "engine/config/rules/rules.h"
#include "tests/engine/comm/mpirun.h"
#include "tests/engine/train/message_listener.h"
#include "tests/engine/train/run_losses.h"

namespace trimtab {
namespace {

constexpr int kRanks = 4;

/// Between them they use every group that a training step has.
constexpr const char* kLayouts[] = {"pp=2,dp=2,zero=3,mbs=2", "tp=2,sp=1,pp=2,mbs=2",
                                    "cp=2,pp=2,mbs=2",        "dp=4,zero=3,shard=2,mbs=1",
                                    "dp=4,ep=2,etp=2,mbs=1",  "dp=4,ep=2,zero=1,mbs=1"};

/// Rank `rank` goes away at message number `nth` of a group.
struct Plan {
  std::string layout;
  int rank = 0;
  int64_t nth = 1;
};

/// In the second step of some rank that uses the group; nothing if no layout does.
std::optional<Plan> PlanFor(GroupKind group, size_t variant) {
  for (const char* layout : kLayouts) {
    RunConfig run = SmallExpertRun(/*llama=*/false);
    run.layout = ParseLayout(layout, 0);
    if (FirstBrokenRule(run) != nullptr) continue;
    std::vector<Plan> plans;
    for (int rank = 0; rank < kRanks; ++rank) {
      const int64_t messages = CountMessages(run, rank)[static_cast<size_t>(group)];
      if (messages > 0) plans.push_back({layout, rank, messages + 1 + messages / 2});
    }
    if (!plans.empty()) return plans[variant % plans.size()];
  }
  return std::nullopt;
}

struct Way {
  const char* name;
  const char* told;  // of the rank
};
constexpr Way kWays[] = {{"throws", "rank {} failed: the disk is full"},
                         {"exits", "rank {} has died"},
                         {"killed", "rank {} has died"},
                         {"stopped", "rank {} has been silent for 3 s"}};

constexpr double kMostSeconds = 30;

using Parameter = std::tuple<GroupKind, size_t>;

class MpiFailureTest : public testing::TestWithParam<Parameter> {};

TEST_P(MpiFailureTest, IsNamedAndEndsAllProcessesInTime) {
  if (const std::string reason = WhyNoMpirun(); !reason.empty()) GTEST_SKIP() << reason;
  const auto [group, number] = GetParam();
  const std::optional<Plan> plan = PlanFor(group, static_cast<size_t>(group) + number);
  if (!plan) GTEST_SKIP() << "no layout has messages in the " << Name(group) << " group";
  const Way& way = kWays[number];
  const std::string mark = fmt::format("mark_of_{}", ::getpid());
  const auto begin = std::chrono::steady_clock::now();
  const MpirunResult result =
      RunUnderMpirun(kRanks,
                     fmt::format("tests/engine/train/mpi_failing_run {} {} {} {} {} {}",
                                 plan->layout, Name(group), plan->rank, plan->nth, way.name, mark),
                     "TRIMTAB_HEARTBEAT_TIMEOUT_S=3");
  const auto took_s = [begin] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  };
  // mpirun returns when it has told the others to go, which need a moment to do so.
  while (AnyProcessHas(mark) && took_s() < kMostSeconds) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  EXPECT_NE(result.exit_code, 0) << result.output;
  EXPECT_LT(took_s(), kMostSeconds);
  const std::string told = fmt::format(fmt::runtime(way.told), plan->rank);
  EXPECT_NE(result.output.find(told), std::string::npos) << plan->layout << "\n" << result.output;
  EXPECT_FALSE(AnyProcessHas(mark)) << "a process is left";
}

std::vector<Parameter> AllParameters() {
  std::vector<Parameter> all;
  for (const ProcessGroup& row : kProcessGroups) {
    for (size_t number = 0; number < std::size(kWays); ++number) all.emplace_back(row.kind, number);
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(Groups, MpiFailureTest, testing::ValuesIn(AllParameters()),
                         [](const auto& param) {
                           return fmt::format("{}_{}", Name(std::get<0>(param.param)),
                                              kWays[std::get<1>(param.param)].name);
                         });

}  // namespace
}  // namespace trimtab
