#include "search/space/objective.h"

#include <gtest/gtest.h>

#include "engine/base/error.h"

namespace trimtab {
namespace {

TEST(Objective, NamesComeBack) {
  for (const Objective objective : kObjectives) {
    EXPECT_EQ(ParseObjective(Name(objective)), objective);
  }
  try {
    ParseObjective("memroy");
    FAIL() << "accepted";
  } catch (const UsageError& error) {
    EXPECT_NE(std::string(error.what()).find("memory"), std::string::npos);
  }
}

TEST(Objective, ScoresWhatIsToBeLow) {
  RunConfig run;
  run.layout.dp = 4;
  run.device = DeviceKind::kCuda;
  EXPECT_EQ(Score(Objective::kThroughput, run, 100, 7), 0.01);
  EXPECT_EQ(Score(Objective::kMemory, run, 100, 7), 7);
  EXPECT_EQ(Score(Objective::kCost, run, 100, 7), 0.04);
  EXPECT_EQ(Score(Objective::kLatency, run, 100, 7), 0.01);
  EXPECT_EQ(Score(Objective::kGpus, run, 100, 7), 4);
  run.device = DeviceKind::kCpu;
  EXPECT_EQ(Score(Objective::kCost, run, 100, 7), 0.01) << "ranks share one machine";
}

}  // namespace
}  // namespace trimtab
