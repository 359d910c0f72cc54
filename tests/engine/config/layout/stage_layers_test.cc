#include "engine/config/layout/stage_layers.h"

#include <gtest/gtest.h>

#include <vector>

#include "engine/base/error.h"
#include "tests/engine/config/error_text.h"

namespace trimtab {
namespace {

TEST(StageLayers, HoldsTheLayersOfEachChunk) {
  const StageLayers stages = ParseStageLayers("7+8+0+255", "s");
  ASSERT_EQ(stages.size(), 4);
  EXPECT_EQ(stages[0], 7);
  EXPECT_EQ(stages[2], 0);
  EXPECT_EQ(stages[3], 255);
  EXPECT_EQ(stages.sum(), 270);
  EXPECT_EQ(ToString(stages), "7+8+0+255");
  EXPECT_EQ(stages, StageLayers(std::vector<int64_t>{7, 8, 0, 255}));
  EXPECT_NE(stages, StageLayers(std::vector<int64_t>{7, 8, 0}));
}

TEST(StageLayers, EmptyMeansBalancedByTheEngine) {
  EXPECT_TRUE(ParseStageLayers("auto", "s").empty());
  EXPECT_EQ(ParseStageLayers("auto", "s"), StageLayers{});
  EXPECT_EQ(ToString(StageLayers{}), "auto");
  EXPECT_EQ(StageLayers{}.sum(), 0);
}

TEST(StageLayers, RefusesWhatIsNoListOrTooLong) {
  std::string most = "1";
  for (int i = 1; i < 128; ++i) most += "+1";
  EXPECT_EQ(ParseStageLayers(most, "s").sum(), 128);
  for (const std::string& text :
       {std::string(), std::string("+"), std::string("3+"), std::string("3,4"), std::string("-1"),
        std::string("256"), std::string("even"), most + "+1"}) {
    EXPECT_EQ(ErrorText<UsageError>([&text] { ParseStageLayers(text, "s"); }),
              "s: expected auto, or the layers of at most 128 chunks, each 0 to 255, as 7+8+8+7, "
              "got '" +
                  text + "'");
  }
}

}  // namespace
}  // namespace trimtab
