// Every legal layout of small models on up to eight ranks trains to the losses of one rank, and
// takes the memory that the dry run says: a sample of them, or under TRIMTAB_EXHAUSTIVE every one.
// What experts take in memory depends on the tokens, unless they are chosen in turn: every other
// layout of a model with experts is trained so.
#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>
#include <map>
#include <numeric>
#include <tuple>

#include "tests/engine/train/layouts.h"
#include "tests/engine/train/run_losses.h"

namespace trimtab {
namespace {

constexpr int64_t kSteps = 5;
constexpr double kTolerance = 1e-5;  // relative; fp32 sums in another order

/// Layouts that one test case trains.
struct Case {
  SmallModel model = SmallModel::kGpt2;
  std::vector<size_t> layouts;
  std::string name;
};

void PrintTo(const Case& test_case, std::ostream* out) { *out << test_case.name; }

std::vector<Case> AllCases() {
  std::vector<Case> cases;
  for (const SmallModel model : kSmallModels) {
    const LayoutSpace& space = SpaceToLayOut(model);
#ifdef TRIMTAB_EXHAUSTIVE
    constexpr size_t kAtOnce = 200;
    for (size_t first = 0; first < space.size(); first += kAtOnce) {
      const size_t count = std::min(kAtOnce, space.size() - first);
      Case& added = cases.emplace_back(Case{.model = model, .layouts = {}, .name = {}});
      added.layouts.resize(count);
      std::iota(added.layouts.begin(), added.layouts.end(), first);
      added.name =
          fmt::format("{}_{}_to_{}_of_{}", Name(model), first + 1, first + count, space.size());
    }
#else
    const bool dense = std::ranges::find(kDenseModels, model) != std::end(kDenseModels);
    const size_t count = dense ? 200 : 100;
    for (const size_t index : space.Sample(count, /*seed=*/1)) {
      const std::string layout = TestName(space[index].layout);
      cases.push_back({model, {index}, fmt::format("{}_{}", Name(model), layout)});
    }
#endif
  }
  return cases;
}

class EveryLayoutTest : public testing::TestWithParam<Case> {
 protected:
  static void TearDownTestSuite() {
    size_t all = 0;
    for (const SmallModel model : kSmallModels) all += SpaceToLayOut(model).size();
    std::cout << "trained " << trained_ << " of " << all << " layouts\n";
  }

  /// What one rank trains to, whatever layout the run has.
  static const TrainedLosses& Expected(SmallModel model, RunConfig run) {
    run.layout = {};
    using Key = std::tuple<SmallModel, int64_t, int64_t, bool>;
    static std::map<Key, TrainedLosses> known;
    const auto [entry, is_new] = known.try_emplace(
        {model, run.model.num_layers, run.global_batch, run.routing.force_balance});
    if (is_new) entry->second = TrainOnRanks(run, *Source(run), kSteps);
    return entry->second;
  }
  static std::unique_ptr<TokenSource> Source(const RunConfig& run) {
    return MakeSyntheticSource(run.model.vocab_size, /*seed=*/7);
  }

  static inline int64_t trained_ = 0;
};

TEST_P(EveryLayoutTest, TrainsLikeOneRank) {
  const Case& test_case = GetParam();
  for (const size_t index : test_case.layouts) {
    RunConfig run = Shortened(SpaceToLayOut(test_case.model)[index]);
    SCOPED_TRACE(fmt::format("layout {}: {}", index + 1, ToString(run.layout)));
    const bool experts = run.model.moe.used();
    run.routing.force_balance = experts && index % 2 == 0;
    const auto source = Source(run);
    const TrainedLosses actual = TrainOnRanks(run, *source, kSteps);
    ExpectSameTraining(actual, Expected(test_case.model, run), kTolerance);
    if (!experts || run.routing.force_balance) {
      EXPECT_EQ(actual.peak_bytes, DryRunPeaks(run, *source));
    }
    ++trained_;
  }
  RecordProperty("total_layouts_trained", std::to_string(test_case.layouts.size()));
}

INSTANTIATE_TEST_SUITE_P(Layouts, EveryLayoutTest, testing::ValuesIn(AllCases()),
                         [](const auto& param) { return param.param.name; });

TEST(EveryLayoutTest, RefusesAnIllegalLayout) {
  RunConfig run = RunToLayOut(SmallModel::kGpt2);
  run.layout.tp = 3;  // of 8 heads
  EXPECT_THROW(TrainOnRanks(run, *MakeSyntheticSource(61, 7), 1), InfeasibleError);
}

}  // namespace
}  // namespace trimtab
