#include "cost_model/closed_form/plan_range.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace trimtab {
namespace {

struct Ends {
  std::string first;
  std::string leanest;
  bool operator==(const Ends&) const = default;
};

Ends EndsOf(const std::vector<const char*>& texts) {
  std::vector<RecomputeConfig> plans;
  for (const char* text : texts) plans.push_back(ParseRecompute(text, "plan"));
  const PlanRange range = RangeOf(plans);
  return {ToString(range.first), ToString(range.leanest)};
}

TEST(PlanRange, OfLayersIsFromTheFirstToTheLast) {
  EXPECT_EQ(EndsOf({"full:block:2", "full:block:3", "full"}), (Ends{"full:block:2", "full"}));
  EXPECT_EQ(EndsOf({"full", "full:uniform:2"}), (Ends{"full", "full:uniform:2"}));
  EXPECT_EQ(EndsOf({"none"}), (Ends{"none", "none"}));
}

TEST(PlanRange, OfModulesIsWhatAllHaveAndWhatAnyHas) {
  EXPECT_EQ(EndsOf({"selective:core_attn+layernorm", "selective:layernorm+logits"}),
            (Ends{"selective:layernorm", "selective:core_attn+layernorm+logits"}));
  EXPECT_EQ(EndsOf({"selective:core_attn", "selective:logits"}),
            (Ends{"none", "selective:core_attn+logits"}));
}

TEST(PlanRange, AWholeMlpHasItsActivationFunction) {
  EXPECT_EQ(EndsOf({"selective:mlp_act", "selective:mlp"}),
            (Ends{"selective:mlp_act", "selective:mlp"}));
  EXPECT_EQ(EndsOf({"selective:mlp+logits", "selective:core_attn+mlp"}),
            (Ends{"selective:mlp", "selective:core_attn+mlp+logits"}));
}

}  // namespace
}  // namespace trimtab
