#include "engine/config/layout/stage_recompute.h"

#include <gtest/gtest.h>

#include "engine/base/error.h"
#include "tests/engine/config/error_text.h"

namespace trimtab {
namespace {

StageRecompute Parse(const std::string& text) { return ParseStageRecompute(text, "r"); }

TEST(StageRecompute, OnePlanHoldsForEveryStage) {
  const StageRecompute recompute = Parse("full:block:2");
  EXPECT_EQ(recompute.size(), 0);
  EXPECT_EQ(recompute, StageRecompute(ParseRecompute("full:block:2", "r")));
  for (const int64_t stage : {0, 1, 1000}) {
    EXPECT_EQ(ToString(recompute[stage]), "full:block:2") << stage;
  }
  EXPECT_EQ(Parse("none"), StageRecompute());
}

TEST(StageRecompute, AListHasThePlanOfEachStage) {
  const StageRecompute recompute = Parse("2xfull/selective:mlp/3xnone");
  EXPECT_EQ(recompute.size(), 6);
  const char* plans[] = {"full", "full", "selective:mlp", "none", "none", "none"};
  for (int64_t stage = 0; stage < 6; ++stage) {
    EXPECT_EQ(ToString(recompute[stage]), plans[stage]) << stage;
  }
}

TEST(StageRecompute, IsWrittenShort) {
  for (const char* text : {"none", "selective:core_attn", "full/none", "2xfull/none", "1xfull",
                           "4xfull:uniform:2", "full/2xnone/full/12xselective:mlp_act"}) {
    EXPECT_EQ(ToString(Parse(text)), text);
  }
  EXPECT_EQ(ToString(Parse("full/full/none/1xnone/2xnone")), "2xfull/4xnone");
  EXPECT_EQ(Parse("full/full"), Parse("2xfull"));
  EXPECT_NE(Parse("2xfull"), Parse("full")) << "of two stages, and of any number";
}

TEST(StageRecompute, RefusesWhatIsNoList) {
  EXPECT_EQ(ErrorText<UsageError>([] { Parse("full/"); }).find("r: unknown recomputation ''"), 0u);
  EXPECT_EQ(
      ErrorText<UsageError>([] { Parse("2xful/none"); }).find("r: unknown recomputation 'ful'"),
      0u);
  EXPECT_EQ(ErrorText<UsageError>([] { Parse("0xfull/none"); }),
            "r: expected from 1 to 1048576 stages of full, got 0");
  EXPECT_EQ(ErrorText<UsageError>([] { Parse("full/none/full/none/full/none/full/none/full"); }),
            "r: the plan changes 8 times from stage to stage; expected at most 7 times");
}

TEST(StageRecomputeDeathTest, StagesBehindTheLastHaveNoPlan) {
  EXPECT_DEATH(static_cast<void>(Parse("full/none")[2]), "stage 2 of full/none");
}

}  // namespace
}  // namespace trimtab
