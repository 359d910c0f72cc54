// The closed form and the dry run agree in every stage of models with experts: layers of both
// kinds, everything that routing can do, every kind of layout.
#include <gtest/gtest.h>

#include "engine/config/rules/rules.h"
#include "tests/cost_model/closed_form/same_estimate.h"
#include "tests/cost_model/closed_form/spaces.h"
#include "tests/engine/train/moe_runs.h"

namespace trimtab {
namespace {

class MoeCostsTest : public testing::TestWithParam<MoeRun> {};

TEST_P(MoeCostsTest, ClosedFormIsTheDryRun) {
  RunConfig run = GetParam().run;
  const Cluster cluster = GenericCpu();
  ClosedFormEstimator estimator(run.model, run.sequence_length, cluster);
  for (const std::string& layout : SmallMoeLayouts()) {
    run.layout = ParseLayout(layout, 0);
    ASSERT_EQ(FirstBrokenRule(run), nullptr) << layout;
    SCOPED_TRACE(layout);
    ExpectSameStages(estimator, run, cluster);
  }
}

TEST_P(MoeCostsTest, TellsForcedChoicesApart) {
  // Routing is no part of a layout: one estimator is asked about both.
  RunConfig run = GetParam().run;
  const Cluster cluster = GenericCpu();
  ClosedFormEstimator estimator(run.model, run.sequence_length, cluster);
  for (const bool force_balance : {false, true}) {
    run.routing.force_balance = force_balance;
    SCOPED_TRACE(force_balance);
    ExpectSameStages(estimator, run, cluster);
  }
}

TEST(MoeCostsInFp8Test, ClosedFormIsTheDryRun) {
  const Cluster cluster = GenericCpu();
  for (const char* name : {"deepseek", "balanced_biases"}) {
    for (const char* scaling : {"delayed", "current"}) {
      RunConfig run = SmallMoeRunInFp8(name);
      run.fp8.scaling = scaling;
      ClosedFormEstimator estimator(run.model, run.sequence_length, cluster);
      int legal = 0;
      for (const std::string& layout : SmallMoeLayouts()) {
        run.layout = ParseLayout(layout + ",precision=fp8", 0);
        if (FirstBrokenRule(run) != nullptr) continue;
        SCOPED_TRACE(layout);
        ExpectSameStages(estimator, run, cluster);
        ++legal;
      }
      EXPECT_GT(legal, 15);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Runs, MoeCostsTest, testing::ValuesIn(SmallMoeRuns()),
                         [](const auto& param) { return param.param.name; });

}  // namespace
}  // namespace trimtab
