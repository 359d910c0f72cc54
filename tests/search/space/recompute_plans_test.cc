#include "search/space/recompute_plans.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

namespace trimtab {
namespace {

std::vector<RecomputeConfig> PlansLike(const std::string& text, int64_t layers) {
  const RecomputeConfig one = ParseRecompute(text, "plan");
  std::vector<RecomputeConfig> plans;
  for (int64_t i = 0; i < PlansOfFamily(one, layers); ++i) {
    plans.push_back(PlanOfFamily(one, layers, i));
  }
  return plans;
}

std::vector<std::string> InWords(const std::vector<RecomputeConfig>& plans) {
  std::vector<std::string> words;
  for (const RecomputeConfig& plan : plans) words.push_back(ToString(plan));
  return words;
}

using Words = std::vector<std::string>;

TEST(RecomputePlans, LayersComeOnTheirOwnAndThenInGroups) {
  EXPECT_EQ(InWords(PlansLike("full", 4)),
            (Words{"full:block:1", "full:block:2", "full:block:3", "full", "full:uniform:2",
                   "full:uniform:3", "full:uniform:4"}));
  EXPECT_EQ(InWords(PlansLike("full:uniform:2", 1)), (Words{"full"})) << "a group of one is none";
  EXPECT_EQ(InWords(PlansLike("none", 4)), (Words{"none"}));
}

TEST(RecomputePlans, SetsOfModulesAreAllThatDiffer) {
  const std::vector<RecomputeConfig> sets = PlansLike("selective", 4);
  std::set<uint8_t> bits;
  for (const RecomputeConfig& plan : sets) {
    EXPECT_EQ(plan.kind, RecomputeKind::kSelective);
    EXPECT_FALSE(plan.modules.Has(RecomputeModule::kMlp) &&
                 plan.modules.Has(RecomputeModule::kMlpAct))
        << ToString(plan);
    bits.insert(plan.modules.bits);
  }
  // Attention, norms and logits or not, times no MLP, its activation function or the whole; but not
  // nothing at all.
  EXPECT_EQ(bits.size(), 2u * 2 * 2 * 3 - 1);
  EXPECT_EQ(sets.size(), bits.size());
  EXPECT_EQ(ToString(sets.front()), "selective:layernorm");
}

TEST(RecomputePlans, TheLighterPartLacksWhatTheRestHas) {
  const std::vector<RecomputeConfig> sets = PlansLike("selective", 4);
  const size_t lighter = LighterPart(sets);
  for (size_t i = 0; i < sets.size(); ++i) {
    EXPECT_EQ(sets[i].modules.Has(RecomputeModule::kMlp), i >= lighter) << ToString(sets[i]);
  }
  const std::vector<RecomputeConfig> full = PlansLike("full", 6);
  EXPECT_EQ(LighterPart(full), 6u) << "layers on their own are apart from groups";
  const std::span<const RecomputeConfig> groups = std::span(full).subspan(6);
  EXPECT_EQ(LighterPart(groups), groups.size() / 2);
}

// Until one plan is left, each part is smaller.
TEST(RecomputePlans, DividingThemComesToAnEnd) {
  for (const char* family : {"selective", "full"}) {
    std::vector<std::vector<RecomputeConfig>> parts = {PlansLike(family, 9)};
    while (!parts.empty()) {
      const std::vector<RecomputeConfig> plans = parts.back();
      parts.pop_back();
      if (plans.size() == 1) continue;
      const auto lighter = static_cast<int64_t>(LighterPart(plans));
      ASSERT_GT(lighter, 0);
      ASSERT_LT(lighter, std::ssize(plans));
      parts.emplace_back(plans.begin(), plans.begin() + lighter);
      parts.emplace_back(plans.begin() + lighter, plans.end());
    }
  }
}

TEST(RecomputePlans, AFamilyIsAKind) {
  const auto plan = [](const char* text) { return ParseRecompute(text, "plan"); };
  EXPECT_TRUE(OfOneFamily(plan("full:block:2"), plan("full:uniform:3")));
  EXPECT_TRUE(OfOneFamily(plan("selective:mlp"), plan("selective:logits")));
  EXPECT_FALSE(OfOneFamily(plan("none"), plan("selective:logits")));
  EXPECT_EQ(PlanFamilies().size(), 3u);
}

}  // namespace
}  // namespace trimtab
