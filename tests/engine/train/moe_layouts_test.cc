// Models with experts train to the losses of one rank under every kind of layout, and take the
// memory that the dry run says where it can know the tokens of each expert.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <tuple>

#include "engine/config/rules/rules.h"
#include "tests/engine/train/moe_runs.h"
#include "tests/engine/train/run_losses.h"

namespace trimtab {
namespace {

constexpr int64_t kSteps = 5;
constexpr double kTolerance = 1e-5;  // relative; fp32 sums in another order

using Case = std::tuple<std::string, std::string>;  // run, layout

std::vector<Case> AllCases() {
  std::vector<Case> cases;
  for (const MoeRun& each : SmallMoeRuns()) {
    for (const std::string& layout : SmallMoeLayouts()) cases.emplace_back(each.name, layout);
  }
  return cases;
}

RunConfig RunOf(const std::string& name, const std::string& layout) {
  RunConfig run = SmallMoeRun(name);
  run.layout = ParseLayout(layout, 0);
  return run;
}

TrainedLosses Train(const RunConfig& run) {
  return TrainOnRanks(run, *MakeSyntheticSource(run.model.vocab_size, /*seed=*/7), kSteps);
}

const TrainedLosses& Expected(const std::string& name) {
  static std::map<std::string, TrainedLosses> known;
  const auto found = known.find(name);
  if (found != known.end()) return found->second;
  return known.emplace(name, Train(RunOf(name, "mbs=1"))).first->second;
}

class MoeLayoutsTest : public testing::TestWithParam<Case> {};

TEST_P(MoeLayoutsTest, TrainLikeOneRank) {
  const auto& [name, layout] = GetParam();
  const RunConfig run = RunOf(name, layout);
  ASSERT_EQ(FirstBrokenRule(run), nullptr);
  const TrainedLosses actual = Train(run);
  const TrainedLosses& expected = Expected(name);
  ExpectSameTraining(actual, expected, kTolerance);
  for (size_t step = 0; step < expected.routing.size(); ++step) {
    const RoutingReport& want = expected.routing[step];
    const RoutingReport& got = actual.routing[step];
    EXPECT_NEAR(got.aux_loss, want.aux_loss, kTolerance * want.aux_loss) << "step " << step;
    EXPECT_NEAR(got.z_loss, want.z_loss, kTolerance * want.z_loss) << "step " << step;
    EXPECT_NEAR(got.imbalance, want.imbalance, 1e-6 * want.imbalance) << "step " << step;
  }
  // Whose tokens go where is not known; nor how many are dropped.
  const bool uneven = run.layout.ep * run.layout.etp > 1 || run.model.moe.capacity_factor > 0;
  if (uneven && !run.routing.force_balance && !run.model.moe.pad_to_capacity) return;
  EXPECT_EQ(actual.peak_bytes,
            DryRunPeaks(run, *MakeSyntheticSource(run.model.vocab_size, /*seed=*/7)));
}

INSTANTIATE_TEST_SUITE_P(Layouts, MoeLayoutsTest, testing::ValuesIn(AllCases()),
                         [](const auto& param) {
                           std::string name =
                               std::get<0>(param.param) + "_" + std::get<1>(param.param);
                           for (char& c : name) c = std::isalnum(c) != 0 ? c : '_';
                           return name;
                         });

TEST(MoeRunsTest, ReportTheirLossesAndImbalance) {
  const TrainedLosses& mixtral = Expected("mixtral");
  // A balanced router has the coefficient as its loss, in each of three layers.
  EXPECT_GT(mixtral.routing[0].aux_loss, 3 * 0.02 * 0.99);
  EXPECT_GT(mixtral.routing[0].imbalance, 1.0);
  EXPECT_EQ(mixtral.routing[0].z_loss, 0.0);
  EXPECT_GT(Expected("qwen").routing[0].z_loss, 0.0);
  EXPECT_EQ(Expected("balanced").routing[0].imbalance, 1.0);
}

}  // namespace
}  // namespace trimtab
