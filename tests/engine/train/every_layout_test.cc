// Every legal layout of two small models on up to eight ranks trains to the losses of one rank, and
// takes the memory that the dry run says: a sample of them, or under TRIMTAB_EXHAUSTIVE every one.
#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>
#include <numeric>

#include "tests/engine/train/layouts.h"
#include "tests/engine/train/run_losses.h"

namespace trimtab {
namespace {

constexpr int64_t kSteps = 5;
constexpr double kTolerance = 1e-5;  // relative; fp32 sums in another order

/// Layouts that one test case trains.
struct Case {
  bool llama = false;
  std::vector<size_t> layouts;
  std::string name;
};

void PrintTo(const Case& test_case, std::ostream* out) { *out << test_case.name; }

std::vector<Case> AllCases() {
  std::vector<Case> cases;
  for (const bool llama : {false, true}) {
    const LayoutSpace& space = SpaceToLayOut(llama);
    const std::string model = llama ? "llama" : "gpt2";
#ifdef TRIMTAB_EXHAUSTIVE
    constexpr size_t kAtOnce = 200;
    for (size_t first = 0; first < space.size(); first += kAtOnce) {
      const size_t count = std::min(kAtOnce, space.size() - first);
      Case& added = cases.emplace_back(Case{.llama = llama, .layouts = {}, .name = {}});
      added.layouts.resize(count);
      std::iota(added.layouts.begin(), added.layouts.end(), first);
      added.name = fmt::format("{}_{}_to_{}_of_{}", model, first + 1, first + count, space.size());
    }
#else
    for (const size_t index : space.Sample(200, /*seed=*/1)) {
      cases.push_back({llama, {index}, model + "_" + TestName(space[index].layout)});
    }
#endif
  }
  return cases;
}

class EveryLayoutTest : public testing::TestWithParam<Case> {
 protected:
  static void TearDownTestSuite() {
    std::cout << "trained " << trained_ << " of "
              << SpaceToLayOut(false).size() + SpaceToLayOut(true).size() << " layouts\n";
  }

  /// What one rank trains to.
  static const TrainedLosses& Expected(bool llama) {
    const auto train = [](bool which) {
      const RunConfig run = RunToLayOut(which);
      return TrainOnRanks(run, *Source(run), kSteps);
    };
    static const TrainedLosses expected[] = {train(false), train(true)};
    return expected[llama ? 1 : 0];
  }
  static std::unique_ptr<TokenSource> Source(const RunConfig& run) {
    return MakeSyntheticSource(run.model.vocab_size, /*seed=*/7);
  }

  static inline int64_t trained_ = 0;
};

TEST_P(EveryLayoutTest, TrainsLikeOneRank) {
  const Case& test_case = GetParam();
  for (const size_t index : test_case.layouts) {
    const RunConfig run = SpaceToLayOut(test_case.llama)[index];
    SCOPED_TRACE(ToString(run.layout));
    const auto source = Source(run);
    const TrainedLosses actual = TrainOnRanks(run, *source, kSteps);
    ExpectSameTraining(actual, Expected(test_case.llama), kTolerance);
    EXPECT_EQ(actual.peak_bytes, DryRunPeaks(run, *source));
    ++trained_;
  }
  RecordProperty("total_layouts_trained", std::to_string(test_case.layouts.size()));
}

INSTANTIATE_TEST_SUITE_P(Layouts, EveryLayoutTest, testing::ValuesIn(AllCases()),
                         [](const auto& param) { return param.param.name; });

TEST(EveryLayoutTest, RefusesAnIllegalLayout) {
  RunConfig run = RunToLayOut(false);
  run.layout.tp = 3;  // of 8 heads
  EXPECT_THROW(TrainOnRanks(run, *MakeSyntheticSource(61, 7), 1), InfeasibleError);
}

}  // namespace
}  // namespace trimtab
