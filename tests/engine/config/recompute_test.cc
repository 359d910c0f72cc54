#include "engine/config/recompute.h"

#include <gtest/gtest.h>

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
  const RecomputeConfig selective = ParseRecompute("selective:mlp_act+norm", "r");
  EXPECT_EQ(selective.kind, RecomputeKind::kSelective);
  EXPECT_TRUE(selective.modules.Has(RecomputeModule::kNorm));
  EXPECT_TRUE(selective.modules.Has(RecomputeModule::kMlpAct));
  EXPECT_FALSE(selective.modules.Has(RecomputeModule::kMlp));
  EXPECT_FALSE(selective.modules.Has(RecomputeModule::kCoreAttn));
  EXPECT_FALSE(selective.modules.Has(RecomputeModule::kLogits));
}

TEST(Recompute, WritesWhatItReads) {
  for (const char* text :
       {"none", "full", "full:block:12", "full:uniform:2", "selective:core_attn",
        "selective:norm+mlp_act", "selective:core_attn+norm+mlp_act+mlp+logits"}) {
    EXPECT_EQ(ToString(ParseRecompute(text, "r")), text);
  }
  EXPECT_EQ(ToString(ParseRecompute("selective", "r")), "selective:core_attn");
  EXPECT_EQ(ToString(ParseRecompute("selective:mlp_act+norm", "r")), "selective:norm+mlp_act")
      << "the order of the modules does not matter";
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
            "r: unknown module ''; valid: core_attn, norm, mlp_act, mlp, logits");
  EXPECT_EQ(ErrorText<UsageError>([] { ParseRecompute("selective:mlp+mlp", "r"); }),
            "r: mlp is given twice");
}

}  // namespace
}  // namespace trimtab
