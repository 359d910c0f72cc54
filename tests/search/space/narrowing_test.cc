#include "search/space/narrowing.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "engine/base/error.h"
#include "engine/config/layout/layout_keys.h"
#include "search/space/space_description.h"
#include "search/space/space_rows.h"
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

/// A value of each key that is not its default. A new key needs one.
constexpr std::pair<const char*, const char*> kOtherValues[] = {
    {"tp", "2"},
    {"sp", "1"},
    {"tp_overlap_chunks", "4"},
    {"cp", "2"},
    {"cp_comm_type", "all_gather"},
    {"pp", "2"},
    {"vp", "2"},
    {"ep", "2"},
    {"etp", "2"},
    {"dispatch", "allgather"},
    {"dp", "4"},
    {"zero", "3"},
    {"shard", "2"},
    {"reshard_after_forward", "0"},
    {"overlap_param_gather", "1"},
    {"schedule", "gpipe"},
    {"mbs", "2"},
    {"recompute", "full:block:2"},
    {"precision", "bf16"},
    {"master", "remainder"},
    {"moments", "bf16"},
    {"grads", "bf16"},
};
/// Keys that no dimension binds.
constexpr std::string_view kNotSearched[] = {"stages", "overlap_grad_reduce"};

TEST(Narrowing, TakesEveryKeyThatIsSearched) {
  std::vector<std::string> searched;
  for (const LayoutKey& key : LayoutKeys()) {
    if (std::ranges::find(kNotSearched, key.name) == std::end(kNotSearched)) {
      searched.emplace_back(key.name);
    }
  }
  EXPECT_EQ(TrainingKeys().names(), searched);
  for (const std::string& name : searched) {
    const auto* other =
        std::ranges::find(kOtherValues, name, [](const auto& of) { return of.first; });
    ASSERT_NE(other, std::end(kOtherValues)) << name;
    const auto fixed = ParseNarrowings({fmt::format("{}={}", name, other->second)}, "--fix", false);
    ParallelConfig layout;
    EXPECT_FALSE(fixed.front().Allows(layout)) << name;
    LayoutKeyCalled(name).parse(other->second, name, layout);
    EXPECT_TRUE(fixed.front().Allows(layout)) << name;
    EXPECT_NE(ToString(layout).find(fmt::format("{}={}", name, other->second)), std::string::npos);
    EXPECT_EQ(NarrowingFromJson(ToJson(fixed)[0], "$"), fixed.front()) << name;
    EXPECT_LT(RowThatBinds(name), SpaceRows().size()) << name;
  }
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
