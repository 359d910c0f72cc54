// Every stage of sharding trains to the same losses as one rank, in every company.
#include <gtest/gtest.h>

#include <cmath>

#include "engine/config/rules/rules.h"
#include "engine/runtime/ranks.h"
#include "tests/engine/train/run_losses.h"

namespace trimtab {
namespace {

constexpr int64_t kSteps = 5;
constexpr double kTolerance = 1e-5;  // relative; fp32 sums in another order

struct Case {
  bool llama = false;
  ParallelConfig layout;
};

RunConfig RunOf(const Case& test_case) {
  RunConfig run = SmallRun(test_case.llama);
  run.global_batch = 12;
  run.layout = test_case.layout;
  return run;
}

std::string CaseName(const testing::TestParamInfo<Case>& info) {
  std::string name =
      fmt::format("{}_{}", info.param.llama ? "llama" : "gpt2", ToString(info.param.layout));
  for (char& c : name) {
    if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
  }
  return name;
}

std::vector<Case> Legal(const std::vector<std::string>& layouts) {
  std::vector<Case> cases;
  for (const bool llama : {false, true}) {
    for (const std::string& text : layouts) {
      const Case test_case = {llama, ParseLayout(text, 0)};
      const Rule* broken = FirstBrokenRule(RunOf(test_case));
      EXPECT_EQ(broken, nullptr) << text << ": " << (broken == nullptr ? "" : broken->id);
      cases.push_back(test_case);
    }
  }
  return cases;
}

std::vector<Case> EveryStage() {
  std::vector<std::string> layouts;
  for (const char* stage : {"zero=1", "zero=2", "zero=3", "zero=3,reshard_after_forward=0"}) {
    for (const char* ranks : {"dp=2,mbs=1", "dp=2,mbs=6", "dp=3,mbs=2", "dp=4,mbs=1", "dp=4,mbs=3",
                              "tp=2,dp=2,mbs=2", "tp=2,sp=1,dp=2,mbs=2", "tp=2,sp=1,dp=3,mbs=4"}) {
      for (const char* recompute : {"none", "full", "full:block:2"}) {
        layouts.push_back(fmt::format("{},{},recompute={}", ranks, stage, recompute));
      }
    }
  }
  return Legal(layouts);
}

std::vector<Case> EveryHybrid() {
  std::vector<std::string> layouts;
  for (const char* stage : {"zero=1", "zero=2", "zero=3", "zero=3,reshard_after_forward=0"}) {
    for (const char* ranks :
         {"dp=4,shard=2,mbs=1", "dp=4,shard=2,mbs=3", "dp=4,shard=4,mbs=3", "dp=6,shard=2,mbs=1",
          "dp=6,shard=3,mbs=2", "tp=2,sp=1,dp=4,shard=2,mbs=1,recompute=full",
          "pp=2,dp=4,shard=2,mbs=1", "pp=2,dp=4,shard=2,mbs=1,schedule=zero-bubble"}) {
      layouts.push_back(fmt::format("{},{}", ranks, stage));
    }
  }
  return Legal(layouts);
}

std::vector<Case> EveryOverlap() {
  std::vector<std::string> layouts;
  for (const char* stage : {"zero=0,overlap_grad_reduce=0", "zero=1,overlap_grad_reduce=0",
                            "zero=2,overlap_grad_reduce=0", "zero=3,overlap_grad_reduce=0",
                            "zero=1,overlap_param_gather=1", "zero=2,overlap_param_gather=1"}) {
    for (const char* ranks : {"dp=2,mbs=2", "dp=4,mbs=1", "tp=2,sp=1,dp=2,mbs=2,recompute=full",
                              "pp=2,dp=2,mbs=2", "pp=2,dp=2,mbs=2,schedule=zero-bubble"}) {
      layouts.push_back(fmt::format("{},{}", ranks, stage));
    }
  }
  for (const char* stage : {"zero=1,overlap_grad_reduce=0", "zero=2,overlap_grad_reduce=0",
                            "zero=1,overlap_param_gather=1", "zero=2,overlap_param_gather=1"}) {
    layouts.push_back(fmt::format("dp=4,shard=2,mbs=1,{}", stage));
  }
  return Legal(layouts);
}

std::vector<Case> EveryStageInAPipeline() {
  std::vector<std::string> layouts;
  for (const char* zero : {"1", "2", "3", "3,reshard_after_forward=0"}) {
    for (const char* ranks :
         {"pp=2,dp=2,mbs=2", "pp=2,dp=2,mbs=2,schedule=gpipe", "pp=2,dp=3,mbs=1",
          "pp=2,vp=2,dp=3,mbs=1,schedule=interleaved-1f1b", "tp=2,sp=1,pp=2,dp=2,mbs=1",
          "pp=2,dp=2,mbs=2,schedule=zero-bubble", "pp=3,dp=2,mbs=1,schedule=zero-bubble",
          "pp=2,tp=2,sp=1,dp=2,mbs=1,schedule=zero-bubble,recompute=full:block:1"}) {
      layouts.push_back(fmt::format("{},zero={}", ranks, zero));
    }
  }
  return Legal(layouts);
}

class ShardingTest : public testing::TestWithParam<Case> {};

TEST_P(ShardingTest, TrainsLikeOneRank) {
  const RunConfig run = RunOf(GetParam());
  RunConfig single = run;
  single.layout = {};
  const auto source = MakeSyntheticSource(run.model.vocab_size, /*seed=*/7);
  const TrainedLosses expected = TrainOnRanks(single, *source, kSteps);
  const TrainedLosses actual = TrainOnRanks(run, *source, kSteps);
  ExpectSameTraining(actual, expected, kTolerance);
}

INSTANTIATE_TEST_SUITE_P(Stages, ShardingTest, testing::ValuesIn(EveryStage()), CaseName);
INSTANTIATE_TEST_SUITE_P(Hybrid, ShardingTest, testing::ValuesIn(EveryHybrid()), CaseName);
INSTANTIATE_TEST_SUITE_P(Overlap, ShardingTest, testing::ValuesIn(EveryOverlap()), CaseName);
INSTANTIATE_TEST_SUITE_P(Pipelines, ShardingTest, testing::ValuesIn(EveryStageInAPipeline()),
                         CaseName);

// What is sent, and who adds it up in which order, stays the same.
TEST(ShardingTest, WhenMessagesTravelDoesNotChangeABit) {
  for (const char* layout : {"dp=2,mbs=2,zero=0", "dp=2,mbs=2,zero=1", "dp=4,mbs=1,zero=2",
                             "dp=4,mbs=1,zero=2,shard=2", "tp=2,sp=1,dp=2,mbs=2,zero=1",
                             "pp=2,dp=2,mbs=2,zero=2,schedule=zero-bubble", "dp=4,mbs=1,zero=3"}) {
    SCOPED_TRACE(layout);
    RunConfig run = RunOf({/*llama=*/false, ParseLayout(layout, 0)});
    const auto source = MakeSyntheticSource(run.model.vocab_size, /*seed=*/7);
    const TrainedLosses expected = TrainOnRanks(run, *source, kSteps);
    run.layout.overlap_grad_reduce = false;
    run.layout.overlap_param_gather = run.layout.zero == 1 || run.layout.zero == 2;
    const TrainedLosses actual = TrainOnRanks(run, *source, kSteps);
    EXPECT_EQ(actual.losses, expected.losses);
    EXPECT_EQ(actual.grad_norms, expected.grad_norms);
  }
}

TEST(ShardingTest, KeepingGatheredWeightsDoesNotChangeABit) {
  for (const char* layout :
       {"dp=2,mbs=2,zero=3", "pp=2,dp=2,mbs=1,zero=3", "pp=2,dp=2,mbs=1,zero=3,recompute=full",
        "pp=2,dp=2,mbs=1,zero=3,schedule=zero-bubble"}) {
    SCOPED_TRACE(layout);
    RunConfig run = RunOf({/*llama=*/true, ParseLayout(layout, 0)});
    const auto source = MakeSyntheticSource(run.model.vocab_size, /*seed=*/7);
    const TrainedLosses expected = TrainOnRanks(run, *source, kSteps);
    run.layout.reshard_after_forward = false;
    EXPECT_EQ(TrainOnRanks(run, *source, kSteps).losses, expected.losses);
  }
}

// Bytes per parameter: 2 + 2 + 12 with bf16 weights and gradients, fp32 masters and moments.
// arXiv:1910.02054, figure 1: 7.5 billion parameters on 64 ranks take 120, 31.4, 16.6 and 1.9 GB.
// Where 8 of the ranks share a replica, it takes what 8 ranks take.
TEST(ShardingMemory, IsWhatThePaperSays) {
  RunConfig run;
  run.model = {.name = "7.5B",
               .vocab_size = 50257,
               .hidden_size = 4096,
               .num_layers = 36,
               .num_heads = 32,
               .num_kv_heads = 32,
               .ffn_hidden_size = 16384,
               .max_sequence_length = 1024};
  run.sequence_length = 16;
  run.global_batch = 64;
  const double parameters = 7.46e9;  // 36 x 12 x 4096^2 + 50257 x 4096, and what is small
  struct Stage {
    int64_t zero;
    int64_t shard;
    double in_gb;
  };
  for (const auto& [zero, shard, in_gb] : {Stage{0, 0, 120},
                                           {1, 0, 31.4},
                                           {2, 0, 16.6},
                                           {3, 0, 1.88},
                                           {1, 8, 41.25},
                                           {2, 8, 28.1},
                                           {3, 8, 15}}) {
    const int64_t ranks = shard == 0 ? 64 : shard;
    run.layout = ParseLayout(
        fmt::format("dp=64,zero={},shard={},precision=bf16,grads=bf16", zero, shard), 0);
    const auto device = MakeMetaDevice(1);
    const ParallelContext context = MakeMetaContext(run.layout, 0);
    const Trainer trainer(run, context, *device);
    const auto bytes = [&device](MemoryTag tag) {
      return static_cast<double>(device->memory().current_by_tag()[static_cast<size_t>(tag)]);
    };
    const auto share = [&](bool sharded) {
      return parameters / static_cast<double>(sharded ? ranks : 1);
    };
    const double weights = 2 * share(zero >= 3);
    const double gradients = 2 * share(zero >= 2);
    const double optimizer = 12 * share(zero >= 1);
    EXPECT_NEAR(bytes(MemoryTag::kWeights), weights, 0.002 * weights) << zero;
    EXPECT_NEAR(bytes(MemoryTag::kGradients), gradients, 0.002 * gradients) << zero;
    EXPECT_NEAR(bytes(MemoryTag::kOptimizer), optimizer, 0.002 * optimizer) << zero;
    const double all = weights + gradients + optimizer;
    EXPECT_NEAR(all / 1e9, in_gb, 0.01 * in_gb);
  }
}

/// Fails when the `count`th message of a kind is submitted.
class FailingListener final : public Recorder {
 public:
  FailingListener(CollectiveKind kind, GroupKind group, int count)
      : kind_(kind), group_(group), left_(count) {}

  void BeginOp(const OpRecord&) override {}
  void BeginComm(const CommRecord& message) override {
    if (message.kind == kind_ && message.group == group_ && --left_ == 0) {
      throw StorageError("the disk is full");
    }
  }
  void BeginWait(const CommRecord&) override {}
  void End() override {}

 private:
  CollectiveKind kind_;
  GroupKind group_;
  int left_;
};

TEST(ShardingFailure, EndsAllRanksWithItsCause) {
  using Kind = CollectiveKind;
  struct Failure {
    const char* layout;
    Kind kind;
    GroupKind group;
    int count;
  };
  for (const auto& [layout, kind, group, count] :
       {Failure{"dp=4,zero=3,mbs=1", Kind::kAllGather, GroupKind::kData, 4},
        {"dp=4,zero=3,mbs=1", Kind::kAllGather, GroupKind::kData, 9},
        {"dp=4,zero=3,mbs=1", Kind::kReduceScatter, GroupKind::kData, 2},
        {"dp=4,zero=3,mbs=1", Kind::kReduceScatter, GroupKind::kData, 7},
        {"dp=4,zero=2,mbs=1,overlap_param_gather=1", Kind::kAllGather, GroupKind::kData, 3},
        {"dp=4,zero=2,mbs=1,overlap_param_gather=1", Kind::kAllReduce, GroupKind::kData, 2},
        {"dp=4,zero=3,shard=2,mbs=1", Kind::kAllGather, GroupKind::kShard, 9},
        {"dp=4,zero=2,shard=2,mbs=1", Kind::kAllReduce, GroupKind::kReplica, 3}}) {
    SCOPED_TRACE(layout);
    RunConfig run = SmallRun(/*llama=*/false);
    run.layout = ParseLayout(layout, 0);
    const auto source = MakeSyntheticSource(run.model.vocab_size, /*seed=*/7);
    const auto train = [&] {
      RunRanks(run, [&](Rank& rank) {
        FailingListener listener(kind, group, count);
        Trainer trainer(run, rank.parallel(), rank.device());
        if (rank.index() == 2) rank.device().set_recorder(&listener);
        for (int64_t step = 0; step < 3; ++step) trainer.Step(*source, step);
      });
    };
    EXPECT_THROW(train(), StorageError);
  }
}

}  // namespace
}  // namespace trimtab
