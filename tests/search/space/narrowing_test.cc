#include "search/space/narrowing.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "engine/base/error.h"
#include "search/space/space_description.h"
#include "tests/search/search_fakes.h"

namespace trimtab {
namespace {

Problem Narrowed(const std::vector<std::string>& words, bool forbidden) {
  Problem problem = TinyProblem();
  problem.narrowings = ParseNarrowings(words, "--flag", forbidden);
  return problem;
}

/// Those of the whole space that `keeps` says.
template <typename Keeps>
std::vector<std::string> KeysOf(const Problem& problem, const Keeps& keeps) {
  std::vector<std::string> keys;
  for (const RunConfig& run : LegalCandidates(problem)) {
    if (keeps(run.layout)) keys.push_back(CandidateKey(run));
  }
  return keys;
}

TEST(Narrowing, LeavesWhatIsAllowedOfTheSpace) {
  const auto all = [](const ParallelConfig&) { return true; };
  EXPECT_EQ(KeysOf(Narrowed({"tp=2", "recompute=none", "full"}, false), all),
            KeysOf(TinyProblem(), [](const ParallelConfig& layout) {
              const std::string recompute = ToString(layout.recompute);
              return layout.tp == 2 && (recompute == "none" || recompute == "full");
            }));
  const std::vector<std::string> block = KeysOf(Narrowed({"recompute=full:block:1"}, false), all);
  EXPECT_FALSE(block.empty());
  EXPECT_EQ(block, KeysOf(TinyProblem(), [](const ParallelConfig& layout) {
              return ToString(layout.recompute) == "full:block:1";
            }));
  EXPECT_EQ(KeysOf(Narrowed({"zero=2", "3", "schedule=1f1b"}, true), all),
            KeysOf(TinyProblem(), [](const ParallelConfig& layout) {
              return layout.zero < 2 && layout.schedule != Schedule::k1F1B;
            }));
  EXPECT_EQ(KeysOf(Narrowed({"dp=4"}, false), all),
            KeysOf(TinyProblem(), [](const ParallelConfig& layout) { return layout.dp == 4; }));
}

TEST(Narrowing, IsPartOfTheProblemWhereThereIsAny) {
  EXPECT_FALSE(ToJson(TinyProblem()).contains("narrowings"));
  EXPECT_EQ(ToJson(Narrowed({"tp=2"}, false))["narrowings"],
            nlohmann::json::parse(R"([{"key": "tp", "allow": ["2"]}])"));
}

std::string Refusal(const std::vector<std::string>& words) {
  try {
    ParseNarrowings(words, "--fix", false);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

TEST(Narrowing, RefusesWhatNoCandidateHas) {
  EXPECT_EQ(Refusal({"tq=8"}), "--fix: no dimension is called 'tq'; did you mean 'tp'?");
  EXPECT_EQ(Refusal({"8"}), "--fix: \"8\": expected KEY=VALUE, such as tp=8");
  EXPECT_EQ(Refusal({"tp=2", "tp=4"}), "--fix: tp is given twice");
  EXPECT_NE(Refusal({"schedule=1f1c"}).find("1f1b"), std::string::npos);
  EXPECT_NE(Refusal({"stages=1+1"}), "") << "stages are balanced, not searched";
}

TEST(SpaceDescription, ListsDimensionsValuesAndRules) {
  const SpaceDescription space = DescribeSpace(TinyProblem());
  const SpaceCounts counts = WalkSpace(TinyProblem(), [](const RunConfig&) {});
  EXPECT_EQ(space.counts.enumerated, counts.enumerated);
  EXPECT_EQ(space.counts.pruned, counts.pruned);
  std::map<std::string, std::vector<std::string>> values;
  for (const auto& each : space.dimensions) values[each.name] = each.values;
  using Values = std::vector<std::string>;
  EXPECT_EQ(values.at("ranks"), (Values{"1", "2", "4"}));
  EXPECT_EQ(values.at("schedule"), (Values{"1f1b", "zero-bubble", "gpipe"}));
  EXPECT_EQ(values.at("zero"), (Values{"0", "1", "2", "3"}));
  EXPECT_EQ(values.at("optimizer state"), (Values{"full"}));
  const Values& recompute = values.at("recompute");
  EXPECT_EQ(Values(recompute.begin(), recompute.begin() + 6),
            (Values{"none", "full:block:1", "full", "full:uniform:2", "selective:layernorm",
                    "selective:mlp_act"}));
  EXPECT_EQ(recompute.size(), 4u + 23u) << "every set of modules";
}

}  // namespace
}  // namespace trimtab
