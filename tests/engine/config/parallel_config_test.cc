#include "engine/config/parallel_config.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "engine/base/error.h"
#include "tests/engine/config/error_text.h"

namespace trimtab {
namespace {

ParallelConfig EverythingSet() {
  return {.tp = 8,
          .sequence_parallel = true,
          .cp = 2,
          .pp = 4,
          .vp = 3,
          .ep = 16,
          .etp = 2,
          .dp = 32,
          .zero = 3,
          .schedule = "zero-bubble",
          .micro_batch = 5,
          .recompute = {.kind = RecomputeKind::kFull, .num_layers = 7},
          .precision = "bf16"};
}

TEST(Layout, TextSaysWhatDiffersFromTheDefault) {
  EXPECT_EQ(ToString(ParallelConfig{}), "tp=1,dp=1,mbs=1");
  EXPECT_EQ(ToString(EverythingSet()),
            "tp=8,sp=1,cp=2,pp=4,vp=3,ep=16,etp=2,dp=32,zero=3,schedule=zero-bubble,mbs=5,"
            "recompute=full:block:7,precision=bf16");
}

TEST(Layout, TextAndJsonRoundTrip) {
  for (const ParallelConfig& layout : {ParallelConfig{}, EverythingSet()}) {
    EXPECT_EQ(ParseLayout(ToString(layout), 0), layout);
    EXPECT_EQ(ParseLayout(ToString(layout), layout.world_size()), layout);
    EXPECT_EQ(ParallelConfigFromJson(ToJson(layout), "f: $.layout"), layout);
  }
}

TEST(Layout, DataParallelSizeIsDerived) {
  EXPECT_EQ(ParseLayout("tp=2,pp=2", 16).dp, 4);
  EXPECT_EQ(ParseLayout("", 4).dp, 4);
  EXPECT_EQ(ParseLayout("tp=2", 0).dp, 1);
  EXPECT_EQ(ParseLayout("tp=2,dp=1", 4).dp, 1);
  EXPECT_EQ(ErrorText<UsageError>([] { ParseLayout("tp=3", 4); }),
            "layout: tp 3 x cp 1 x pp 1 = 3 does not divide the 4 ranks");
  EXPECT_EQ(ErrorText<UsageError>([] { ParseLayout("tp=8", 4); }),
            "layout: tp 8 x cp 1 x pp 1 = 8 does not divide the 4 ranks");
}

TEST(Layout, MistakesAreNamed) {
  const std::pair<const char*, const char*> cases[] = {
      {"tpp=2", "layout: unknown key 'tpp'; did you mean 'tp'?"},
      {"tp=2,,dp=1",
       "layout: unknown key ''; valid: tp, sp, cp, pp, vp, ep, etp, dp, zero, schedule, mbs, "
       "recompute, precision, "
       "master, moments, grads"},
      {"micro_batch=2",
       "layout: unknown key 'micro_batch'; valid: tp, sp, cp, pp, vp, ep, etp, dp, zero, schedule, "
       "mbs, recompute, precision, "
       "master, moments, grads"},
      {"tp", "layout: tp has no value; expected tp=..."},
      {"tp=", "layout: tp: expected an integer from 1 to 1048576, got ''"},
      {"tp=0", "layout: tp: expected an integer from 1 to 1048576, got '0'"},
      {"tp=2x", "layout: tp: expected an integer from 1 to 1048576, got '2x'"},
      {"tp=99999999999999999999",
       "layout: tp: expected an integer from 1 to 1048576, got '99999999999999999999'"},
      {"tp=2,tp=4", "layout: tp is given twice"},
      {"zero=4", "layout: zero: expected an integer from 0 to 3, got '4'"},
      {"sp=yes", "layout: sp: expected 0 or 1, got 'yes'"},
      {"schedule=1fb1", "layout: schedule: unknown value '1fb1'; did you mean '1f1b'?"},
      {"precision=fp31", "layout: precision: unknown value 'fp31'; did you mean 'fp32'?"},
      {"tp=1048576,dp=2", "layout: tp 1048576 x cp 1 x pp 1 x dp 2 is more than 1048576 ranks"},
      {"tp=1048576,cp=1048576,pp=1048576,dp=1048576",
       "layout: tp 1048576 x cp 1048576 x pp 1048576 x dp 1048576 is more than 1048576 ranks"},
  };
  for (const auto& [text, message] : cases) {
    EXPECT_EQ(ErrorText<UsageError>([text = text] { ParseLayout(text, 0); }), message);
  }
}

TEST(Recompute, ReadsEveryForm) {
  EXPECT_EQ(ParseRecompute("none", "r"), RecomputeConfig{});
  EXPECT_EQ(ParseRecompute("full", "r"), (RecomputeConfig{.kind = RecomputeKind::kFull}));
  EXPECT_EQ(ParseRecompute("full:uniform:1", "r"), (RecomputeConfig{.kind = RecomputeKind::kFull}));
  EXPECT_EQ(ParseRecompute("full:block:3", "r"),
            (RecomputeConfig{.kind = RecomputeKind::kFull, .num_layers = 3}));
  for (const char* text : {"none", "full", "full:block:12"}) {
    EXPECT_EQ(ToString(ParseRecompute(text, "r")), text);
  }
}

TEST(Recompute, RefusesWhatItDoesNotHave) {
  const char* const unavailable[] = {"selective", "selective:core_attn,mlp"};
  for (const std::string text : unavailable) {
    EXPECT_EQ(ErrorText<UsageError>([&text] { ParseRecompute(text, "layout: recompute"); }),
              "layout: recompute: '" + text +
                  "' is not available in this version; available: none, full, full:block:N");
  }
  EXPECT_EQ(ErrorText<UsageError>([] { ParseRecompute("full:uniform:4", "r"); }),
            "r: groups of 4 layers ('full:uniform:4') are not available in this version; "
            "available: none, full, full:uniform:1, full:block:N");
  for (const std::string text : {"", "ful", "full:", "full:block", "full:block:0", "full:block:-1",
                                 "full:block:x", "full:block:2:3", "full:blok:2", "none:1"}) {
    EXPECT_EQ(ErrorText<UsageError>([&text] { ParseRecompute(text, "r"); }),
              "r: unknown recomputation '" + text + "'; available: none, full, full:block:N");
  }
}

}  // namespace
}  // namespace trimtab
