#include "engine/config/layout/parallel_config.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>

#include "engine/base/error.h"
#include "engine/config/layout/layout_keys.h"
#include "tests/engine/config/error_text.h"

namespace trimtab {
namespace {

/// Every member with a value that is not its default.
ParallelConfig EverythingSet() {
  ParallelConfig layout;
  layout.tp = 8;
  layout.sequence_parallel = true;
  layout.tp_overlap_chunks = 4;
  layout.cp = 2;
  layout.cp_comm_type = CpCommType::kAllGather;
  layout.pp = 4;
  layout.vp = 3;
  layout.stages = ParseStageLayers("1+2+3+4+5+6+7+8+9+10+11+12", "");
  layout.ep = 16;
  layout.etp = 2;
  layout.dispatch = Dispatch::kAllGather;
  layout.dp = 32;
  layout.zero = 3;
  layout.shard = 8;
  layout.reshard_after_forward = false;
  layout.overlap_grad_reduce = false;
  layout.overlap_param_gather = true;
  layout.schedule = Schedule::kZeroBubble;
  layout.micro_batch = 5;
  layout.recompute = ParseStageRecompute("2xfull:block:7/none/selective:mlp", "");
  layout.numerics.precision = Precision::kBf16;
  layout.numerics.master = MasterWeights::kRemainder;
  layout.numerics.moments = DType::kF16;
  layout.numerics.gradients = DType::kBf16;
  return layout;
}

TEST(Layout, TextSaysWhatDiffersFromTheDefault) {
  EXPECT_EQ(ToString(ParallelConfig{}), "tp=1,dp=1,mbs=1");
  EXPECT_EQ(ToString(EverythingSet()),
            "tp=8,sp=1,tp_overlap_chunks=4,cp=2,cp_comm_type=all_gather,pp=4,vp=3,"
            "stages=1+2+3+4+5+6+7+8+9+10+11+12,ep=16,etp=2,dispatch=allgather,dp=32,zero=3,"
            "shard=8,reshard_after_forward=0,overlap_grad_reduce=0,overlap_param_gather=1,"
            "schedule=zero-bubble,mbs=5,recompute=2xfull:block:7/none/selective:mlp,precision=bf16,"
            "master=remainder,moments=fp16,grads=bf16");
}

TEST(Layout, TextAndJsonRoundTrip) {
  for (const ParallelConfig& layout : {ParallelConfig{}, EverythingSet()}) {
    EXPECT_EQ(ParseLayout(ToString(layout), 0), layout);
    EXPECT_EQ(ParseLayout(ToString(layout), layout.world_size()), layout);
    EXPECT_EQ(ParallelConfigFromJson(ToJson(layout), "f: $.layout"), layout);
  }
}

TEST(Layout, EveryWordIsReadBack) {
  for (const Schedule each :
       {Schedule::k1F1B, Schedule::kGpipe, Schedule::kInterleaved1F1B, Schedule::kZeroBubble}) {
    EXPECT_EQ(ParseLayout(fmt::format("schedule={}", Name(each)), 0).schedule, each);
  }
  for (const Precision each :
       {Precision::kFp32, Precision::kTf32, Precision::kBf16, Precision::kFp16, Precision::kFp8}) {
    EXPECT_EQ(ParseLayout(fmt::format("precision={}", Name(each)), 0).numerics.precision, each);
  }
}

// What the program wrote before it had the newer keys: studies hold such layouts.
TEST(Layout, ReadsWhatOlderVersionsWrote) {
  const nlohmann::json json = nlohmann::json::parse(R"({
      "tp": 2, "sp": true, "cp": 1, "pp": 1, "vp": 1, "ep": 1, "etp": 1, "dp": 4, "zero": 1,
      "schedule": "1f1b", "mbs": 2, "recompute": "full", "precision": "bf16",
      "master": "remainder", "moments": "bf16", "grads": "fp32"})");
  const ParallelConfig layout = ParallelConfigFromJson(json, "f: $.layout");
  const std::string key =
      "tp=2,sp=1,dp=4,zero=1,mbs=2,recompute=full,precision=bf16,master=remainder,moments=bf16";
  EXPECT_EQ(ToString(layout), key);
  EXPECT_EQ(ParseLayout(key, 0), layout);
}

TEST(Layout, EveryKeyHasOneNameAndALineOfHelp) {
  std::set<std::string> names;
  const std::string help = fmt::format("\n{}", DescribeLayoutKeys());
  for (const LayoutKey& key : LayoutKeys()) {
    EXPECT_TRUE(names.insert(key.name).second) << key.name;
    EXPECT_NE(help.find(fmt::format("\n{} ", key.name)), std::string::npos) << key.name;
  }
  // What is written as text and as JSON is one value: the table has no member twice or forgotten.
  const nlohmann::json json = ToJson(EverythingSet());
  const nlohmann::json defaults = ToJson(ParallelConfig{});
  EXPECT_EQ(json.size(), names.size());
  for (const std::string& name : names) EXPECT_NE(json.at(name), defaults.at(name)) << name;
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

TEST(Layout, SeveralChunksAreInterleavedUnlessAScheduleIsSaid) {
  EXPECT_EQ(ParseLayout("pp=4,vp=2", 0).schedule, Schedule::kInterleaved1F1B);
  EXPECT_EQ(ParseLayout("vp=2,schedule=1f1b,pp=4", 0).schedule, Schedule::k1F1B);
  EXPECT_EQ(ParseLayout("pp=4,vp=1", 0).schedule, Schedule::k1F1B);
  const nlohmann::json layout = {{"pp", 4}, {"vp", 2}};
  EXPECT_EQ(ParallelConfigFromJson(layout, "$").schedule, Schedule::kInterleaved1F1B);
}

TEST(Layout, MistakesAreNamed) {
  const std::string valid =
      "; valid: tp, sp, tp_overlap_chunks, cp, cp_comm_type, pp, vp, stages, ep, etp, dispatch, "
      "dp, "
      "zero, shard, reshard_after_forward, overlap_grad_reduce, overlap_param_gather, schedule, "
      "mbs, recompute, precision, master, moments, grads";
  const std::pair<const char*, std::string> cases[] = {
      {"tpp=2", "layout: unknown key 'tpp'; did you mean 'tp'?"},
      {"tp=2,,dp=1", "layout: unknown key ''" + valid},
      {"micro_batch=2", "layout: unknown key 'micro_batch'" + valid},
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
      {"grads=fp16", "layout: grads: unknown value 'fp16'; valid: fp32, bf16"},
      {"stages=3+x",
       "layout: stages: expected auto, or the layers of at most 128 chunks, each 0 to 255, as "
       "7+8+8+7, got '3+x'"},
      {"tp=1048576,dp=2", "layout: tp 1048576 x cp 1 x pp 1 x dp 2 is more than 1048576 ranks"},
      {"tp=1048576,cp=1048576,pp=1048576,dp=1048576",
       "layout: tp 1048576 x cp 1048576 x pp 1048576 x dp 1048576 is more than 1048576 ranks"},
  };
  for (const auto& [text, message] : cases) {
    EXPECT_EQ(ErrorText<UsageError>([text = text] { ParseLayout(text, 0); }), message);
  }
}

}  // namespace
}  // namespace trimtab
