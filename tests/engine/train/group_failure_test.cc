// A rank that fails in the middle of the messages of any group ends all others, who learn its name
// and the cause; nobody hangs.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <numeric>
#include <random>

#include "engine/base/error.h"
#include "engine/runtime/ranks.h"
#include "tests/engine/comm/watchdog.h"
#include "tests/engine/train/layouts.h"
#include "tests/engine/train/message_listener.h"
#include "tests/engine/train/run_losses.h"

namespace trimtab {
namespace {

constexpr int kSteps = 2;

/// Rank `rank` of `run` fails at message number `nth` of a group.
struct Plan {
  RunConfig run;
  int rank = 0;
  int64_t nth = 1;
};

/// A failure of some rank that uses the group, at some moment; nothing if no rank does.
std::vector<Plan> DrawPlan(const RunConfig& run, GroupKind group, std::mt19937& random) {
  std::vector<Plan> plans;
  for (int rank = 0; rank < run.layout.world_size(); ++rank) {
    const int64_t messages = kSteps * CountMessages(run, rank)[static_cast<size_t>(group)];
    if (messages == 0) continue;
    plans.push_back({run, rank, 1 + static_cast<int64_t>(random()) % messages});
  }
  if (plans.empty()) return {};
  return {plans[random() % plans.size()]};
}

/// Up to `count` failures in layouts of at least four ranks.
std::vector<Plan> DrawPlans(GroupKind group, size_t count) {
  const bool shares_heads = group == GroupKind::kKeyValue;
  const LayoutSpace& space = SpaceToLayOut(shares_heads ? SmallModel::kGpt2 : SmallModel::kMixtral);
  std::vector<size_t> order = space.Sample(1, /*seed=*/2);
  std::mt19937 random(17 + static_cast<uint32_t>(group));
  std::shuffle(order.begin(), order.end(), random);
  std::vector<Plan> plans;
  for (const size_t index : order) {
    if (plans.size() == count) break;
    const RunConfig run = space[index];
    if (run.layout.world_size() < 4) continue;
    const std::vector<Plan> drawn = DrawPlan(run, group, random);
    plans.insert(plans.end(), drawn.begin(), drawn.end());
  }
  return plans;
}

class GroupFailureTest : public testing::TestWithParam<GroupKind> {};

TEST_P(GroupFailureTest, EndsAllRanksNamingTheOneThatFailed) {
  const std::vector<Plan> plans = DrawPlans(GetParam(), 12);
  if (plans.empty()) {
    GTEST_SKIP() << "no layout has messages in the " << Name(GetParam()) << " group";
  }
  for (const Plan& plan : plans) {
    SCOPED_TRACE(
        fmt::format("{}, rank {} at message {}", ToString(plan.run.layout), plan.rank, plan.nth));
    const Watchdog watchdog("a run with a rank that fails", /*limit_s=*/200);
    const auto source = MakeSyntheticSource(plan.run.model.vocab_size, /*seed=*/7);
    const std::string told = fmt::format("rank {} failed: the disk is full", plan.rank);
    std::atomic<int64_t> knowing{0};
    const auto train = [&] {
      RunRanks(plan.run, [&](Rank& rank) {
        MessageListener listener(GetParam(), plan.nth,
                                 [] { throw StorageError("the disk is full"); });
        Trainer trainer(plan.run, rank.parallel(), rank.device());
        if (rank.index() == plan.rank) rank.device().set_recorder(&listener);
        try {
          for (int64_t step = 0; step < kSteps; ++step) {
            trainer.Step(*source, step);
            if (rank.index() == plan.rank) listener.BeforeBarrier();
            rank.Barrier();
          }
        } catch (const CommError& error) {
          EXPECT_EQ(std::string(error.what()), told) << "rank " << rank.index();
          ++knowing;
          throw;
        }
      });
    };
    EXPECT_THROW(train(), StorageError);
    EXPECT_EQ(knowing, plan.run.layout.world_size() - 1);
  }
}

std::vector<GroupKind> AllGroups() {
  std::vector<GroupKind> groups;
  for (const ProcessGroup& row : kProcessGroups) groups.push_back(row.kind);
  return groups;
}

INSTANTIATE_TEST_SUITE_P(Groups, GroupFailureTest, testing::ValuesIn(AllGroups()),
                         [](const auto& param) { return std::string(Name(param.param)); });

}  // namespace
}  // namespace trimtab
