// Models of every family under layouts drawn at random, on up to four ranks, train to the
// losses of one rank and take the memory that the dry run says. Every layout of GPT-2 and Llama is
// every_layout_test's.
#include <gtest/gtest.h>

#include <random>
#include <set>

#include "tests/engine/train/families.h"
#include "tests/engine/train/layouts.h"
#include "tests/engine/train/run_losses.h"

namespace trimtab {
namespace {

constexpr int64_t kSteps = 3;
constexpr double kTolerance = 1e-5;  // relative; fp32 sums in another order
#ifdef TRIMTAB_EXHAUSTIVE
constexpr size_t kLayouts = 400;
#else
constexpr size_t kLayouts = 10;
#endif

class FamilyLayoutsTest : public testing::TestWithParam<std::string> {};

TEST_P(FamilyLayoutsTest, TrainLikeOneRank) {
  const RunConfig one = FamilyRun(GetParam());
  const auto source = MakeSyntheticSource(one.model.vocab_size, /*seed=*/7);
  const TrainedLosses expected = TrainOnRanks(one, *source, kSteps);
  const LayoutSpace space(one, /*most_ranks=*/4);
  ASSERT_GE(space.size(), kLayouts);
  std::mt19937 random(static_cast<uint32_t>(std::hash<std::string>()(GetParam())));
  std::set<size_t> drawn;
  while (drawn.size() < kLayouts) drawn.insert(random() % space.size());
  for (const size_t index : drawn) {
    const RunConfig run = space[index];
    SCOPED_TRACE(ToString(run.layout));
    const TrainedLosses actual = TrainOnRanks(run, *source, kSteps);
    ExpectSameTraining(actual, expected, kTolerance);
    // How many rows go to which rank's experts depends on the tokens.
    if (run.model.moe.used()) continue;
    EXPECT_EQ(actual.peak_bytes, DryRunPeaks(run, *source));
  }
}

INSTANTIATE_TEST_SUITE_P(Families, FamilyLayoutsTest, testing::ValuesIn(FamilyNames()),
                         [](const auto& param) { return param.param; });

}  // namespace
}  // namespace trimtab
