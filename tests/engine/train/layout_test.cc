// Every layout trains to the same losses as one rank: fixed tokens and seed, relative 1e-5.
#include <gtest/gtest.h>

#include <cmath>

#include "engine/config/rules.h"
#include "tests/engine/train/run_losses.h"

namespace trimtab {
namespace {

constexpr int64_t kSteps = 10;
constexpr double kTolerance = 1e-5;  // relative; fp32 sums in another order

struct Case {
  bool llama;
  int64_t kv_heads;
  ParallelConfig layout;
};

std::string CaseName(const testing::TestParamInfo<Case>& info) {
  std::string name = fmt::format("{}_kv{}_{}", info.param.llama ? "llama" : "gpt2",
                                 info.param.kv_heads, ToString(info.param.layout));
  for (char& c : name) {
    if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
  }
  return name;
}

RunConfig RunOf(const Case& test_case) {
  RunConfig run = SmallRun(test_case.llama);
  run.model.num_kv_heads = test_case.kv_heads;
  run.layout = test_case.layout;
  return run;
}

std::vector<Case> AllCases() {
  std::vector<Case> cases;
  for (const auto& [llama, kv_heads] :
       {std::pair{false, int64_t{4}}, std::pair{true, int64_t{2}}}) {
    for (const int64_t tp : {1, 2, 4}) {
      for (const bool sp : {false, true}) {
        for (const int64_t dp : {1, 2, 4}) {
          for (const int64_t zero : {0, 1}) {
            for (const int64_t mbs : {1, 2, 4}) {
              for (const int64_t recomputed : {0, 2, -1}) {
                Case test_case = {llama, kv_heads, {}};
                test_case.layout.tp = tp;
                test_case.layout.sequence_parallel = sp;
                test_case.layout.dp = dp;
                test_case.layout.zero = zero;
                test_case.layout.micro_batch = mbs;
                if (recomputed != 0) {
                  test_case.layout.recompute =
                      ParseRecompute(recomputed > 0 ? "full:block:2" : "full", "plan");
                }
                const bool small = tp * dp <= 4 || (tp == 4 && dp == 2 && mbs == 2);
                if (small && FirstBrokenRule(RunOf(test_case)) == nullptr) {
                  cases.push_back(test_case);
                }
              }
            }
          }
        }
      }
    }
  }
  return cases;
}

class LayoutTest : public testing::TestWithParam<Case> {};

TEST_P(LayoutTest, TrainsLikeOneRank) {
  RunConfig run = RunOf(GetParam());
  const auto source = MakeSyntheticSource(run.model.vocab_size, /*seed=*/7);
  RunConfig single = run;
  single.layout = {};
  const TrainedLosses expected = TrainOnRanks(single, *source, kSteps);
  const TrainedLosses actual = TrainOnRanks(run, *source, kSteps);
  ExpectSameTraining(actual, expected, kTolerance);
}

INSTANTIATE_TEST_SUITE_P(Layouts, LayoutTest, testing::ValuesIn(AllCases()), CaseName);

TEST(LayoutTest, RefusesAnIllegalLayout) {
  RunConfig run = SmallRun(false);
  run.layout.tp = 3;
  EXPECT_THROW(TrainOnRanks(run, *MakeSyntheticSource(61, 7), 1), InfeasibleError);
}

}  // namespace
}  // namespace trimtab
