#include "engine/config/layout/recompute.h"

#include <gtest/gtest.h>

#include <vector>

#include "engine/base/error.h"
#include "tests/engine/config/error_text.h"

namespace trimtab {
namespace {

TEST(Recompute, ReadsEveryForm) {
  EXPECT_EQ(ParseRecompute("none", "r"), RecomputeConfig{});
  EXPECT_EQ(ParseRecompute("full", "r"), (RecomputeConfig{.kind = RecomputeKind::kFull}));
  EXPECT_EQ(ParseRecompute("full:uniform:1", "r"), (RecomputeConfig{.kind = RecomputeKind::kFull}));
  EXPECT_EQ(ParseRecompute("full:block:3", "r"),
            (RecomputeConfig{.kind = RecomputeKind::kFull, .num_layers = 3}));
  EXPECT_EQ(
      ParseRecompute("full:uniform:4", "r"),
      (RecomputeConfig{
          .kind = RecomputeKind::kFull, .num_layers = 4, .method = RecomputeMethod::kUniform}));
  const RecomputeConfig selective = ParseRecompute("selective:mlp_act+layernorm", "r");
  EXPECT_EQ(selective.kind, RecomputeKind::kSelective);
  EXPECT_TRUE(selective.modules.Has(RecomputeModule::kLayerNorm));
  EXPECT_TRUE(selective.modules.Has(RecomputeModule::kMlpAct));
  EXPECT_FALSE(selective.modules.Has(RecomputeModule::kMlp));
  EXPECT_FALSE(selective.modules.Has(RecomputeModule::kCoreAttn));
  EXPECT_FALSE(selective.modules.Has(RecomputeModule::kLogits));
}

TEST(Recompute, WritesWhatItReads) {
  for (const char* text :
       {"none", "full", "full:block:12", "full:uniform:2", "selective:core_attn",
        "selective:layernorm+mlp_act", "selective:core_attn+layernorm+mlp_act+mlp+logits"}) {
    EXPECT_EQ(ToString(ParseRecompute(text, "r")), text);
  }
  EXPECT_EQ(ToString(ParseRecompute("selective", "r")), "selective:core_attn");
  EXPECT_EQ(ToString(ParseRecompute("selective:mlp_act+layernorm", "r")),
            "selective:layernorm+mlp_act")
      << "the order of the modules does not matter";
}

std::vector<RecomputeGroup> GroupsOf(const std::string& plan, int64_t num_layers) {
  const RecomputeConfig recompute = ParseRecompute(plan, "r");
  std::vector<RecomputeGroup> groups;
  for (int64_t layer = 0; layer < num_layers; layer += groups.back().count) {
    groups.push_back(RecomputeGroupOf(recompute, layer, num_layers));
    for (int64_t i = layer; i < layer + groups.back().count; ++i) {
      EXPECT_EQ(RecomputeGroupOf(recompute, i, num_layers), groups.back()) << plan;
    }
  }
  return groups;
}

TEST(Recompute, CutsAStageIntoGroups) {
  using Groups = std::vector<RecomputeGroup>;
  EXPECT_EQ(GroupsOf("none", 2), (Groups{{0, 1, false}, {1, 1, false}}));
  EXPECT_EQ(GroupsOf("selective", 1), (Groups{{0, 1, false}}));
  EXPECT_EQ(GroupsOf("full", 2), (Groups{{0, 1, true}, {1, 1, true}}));
  EXPECT_EQ(GroupsOf("full:block:1", 3), (Groups{{0, 1, true}, {1, 1, false}, {2, 1, false}}));
  EXPECT_EQ(GroupsOf("full:uniform:2", 5), (Groups{{0, 2, true}, {2, 2, true}, {4, 1, true}}));
  EXPECT_EQ(GroupsOf("full:uniform:9", 2), (Groups{{0, 2, true}}));
}

TEST(Recompute, OfSomeGroupsIsThatOfAStageOfTheirOwn) {
  constexpr int64_t kLayers = 8;
  for (const char* text : {"none", "selective:mlp", "full", "full:block:3", "full:uniform:3"}) {
    const RecomputeConfig plan = ParseRecompute(text, "r");
    const std::vector<RecomputeGroup> groups = GroupsOf(text, kLayers);
    for (size_t begin = 0; begin < groups.size(); ++begin) {
      for (size_t last = begin; last < groups.size(); ++last) {
        const int64_t first = groups[begin].first;
        const int64_t count = groups[last].first + groups[last].count - first;
        const RecomputeConfig within = RecomputeWithin(plan, first, count);
        for (size_t i = begin; i <= last; ++i) {
          RecomputeGroup expected = groups[i];
          expected.first -= first;
          EXPECT_EQ(RecomputeGroupOf(within, expected.first, count), expected) << text;
        }
      }
    }
  }
}

// So that what is the same is recorded once, whichever plan it comes from.
TEST(Recompute, OfAllLayersHasOneName) {
  const RecomputeConfig plan = ParseRecompute("full:block:3", "r");
  EXPECT_EQ(ToString(RecomputeWithin(plan, 0, 2)), "full");
  EXPECT_EQ(ToString(RecomputeWithin(plan, 1, 2)), "full");
  EXPECT_EQ(ToString(RecomputeWithin(plan, 2, 2)), "full:block:1");
  EXPECT_EQ(ToString(RecomputeWithin(plan, 3, 2)), "none");
  EXPECT_EQ(ToString(FullOf(2, 3)), "full:block:2");
  EXPECT_EQ(ToString(FullOf(3, 3)), "full");
}

TEST(Recompute, RefusesWhatItDoesNotKnow) {
  for (const std::string text :
       {"", "ful", "full:", "full:block", "full:block:0", "full:block:-1", "full:block:x",
        "full:block:2:3", "full:blok:2", "none:1", "selective:mlp:2"}) {
    EXPECT_EQ(ErrorText<UsageError>([&text] { ParseRecompute(text, "layout: recompute"); }),
              "layout: recompute: unknown recomputation '" + text +
                  "'; available: none, selective[:MODULE+MODULE...], full, full:uniform:N, "
                  "full:block:N");
  }
  EXPECT_EQ(ErrorText<UsageError>([] { ParseRecompute("selective:core_atn", "r"); }),
            "r: unknown module 'core_atn'; did you mean 'core_attn'?");
  EXPECT_EQ(ErrorText<UsageError>([] { ParseRecompute("selective:", "r"); }),
            "r: unknown module ''; valid: core_attn, layernorm, mlp_act, mlp, logits");
  EXPECT_EQ(ErrorText<UsageError>([] { ParseRecompute("selective:mlp+mlp", "r"); }),
            "r: mlp is given twice");
}

}  // namespace
}  // namespace trimtab
