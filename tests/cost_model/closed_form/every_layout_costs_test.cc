// The closed form and the dry run agree in every stage of every legal layout of small models on up
// to eight ranks: a sample of them, or under TRIMTAB_EXHAUSTIVE every one.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "tests/cost_model/closed_form/same_estimate.h"
#include "tests/cost_model/closed_form/spaces.h"
#include "tests/engine/train/layouts.h"

namespace trimtab {
namespace {

/// Layouts whose costs one test case compares, with one estimator.
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
    constexpr size_t kAtOnce = 1000;
    std::vector<size_t> layouts(space.size());
    std::iota(layouts.begin(), layouts.end(), size_t{0});
#else
    constexpr size_t kAtOnce = 500;
    const std::vector<size_t> layouts =
        space.Sample(space[0].model.moe.used() ? 1000 : 5000, /*seed=*/4);
#endif
    for (size_t first = 0; first < layouts.size(); first += kAtOnce) {
      const size_t end = std::min(first + kAtOnce, layouts.size());
      Case& added = cases.emplace_back(Case{.model = model, .layouts = {}, .name = {}});
      added.layouts.assign(layouts.begin() + static_cast<int64_t>(first),
                           layouts.begin() + static_cast<int64_t>(end));
      added.name = fmt::format("{}_{}_to_{}_of_{}", Name(model), first + 1, end, layouts.size());
    }
  }
  return cases;
}

class EveryLayoutCostsTest : public testing::TestWithParam<Case> {};

TEST_P(EveryLayoutCostsTest, ClosedFormIsTheDryRun) {
  const Case& test_case = GetParam();
  const RunConfig base = SpaceToLayOut(test_case.model)[0];
  const Cluster cluster = GenericCpu();
  ClosedFormEstimator estimator(base.model, base.sequence_length, cluster);
  for (const size_t index : test_case.layouts) {
    RunConfig run = SpaceToLayOut(test_case.model)[index];
    run.routing.force_balance = run.model.moe.used();
    SCOPED_TRACE(ToString(run.layout));
    ExpectSameStages(estimator, run, cluster);
    if (HasFailure()) return;
  }
  RecordProperty("total_layouts_composed", std::to_string(test_case.layouts.size()));
}

INSTANTIATE_TEST_SUITE_P(Layouts, EveryLayoutCostsTest, testing::ValuesIn(AllCases()),
                         [](const auto& param) { return param.param.name; });

}  // namespace
}  // namespace trimtab
