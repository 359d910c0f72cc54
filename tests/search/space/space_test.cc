#include "search/space/space.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "cost_model/hardware/numerics.h"
#include "engine/base/error.h"
#include "engine/base/units.h"
#include "engine/config/rules/rules.h"
#include "tests/search/search_fakes.h"

namespace trimtab {
namespace {

SpaceCounts Count(const Problem& problem) {
  return WalkSpace(problem, [](const RunConfig&) {});
}

/// What a walk should find, by looking at each candidate on its own: what this version can run of
/// a problem with one precision and full optimizer state.
struct Expected {
  std::vector<std::string> legal;
  std::map<std::string, int64_t> pruned;
  int64_t enumerated = 0;

  void Look(const RunConfig& run) {
    const Rule* broken = FirstBrokenRule(run);
    if (broken != nullptr && std::string_view(broken->id).ends_with("-unsupported")) return;
    ++enumerated;
    if (broken == nullptr) {
      legal.push_back(CandidateKey(run));
    } else {
      ++pruned[broken->id];
    }
  }
};

/// The pipelines of a row of stages: schedule and chunks per rank.
std::vector<std::pair<Schedule, int64_t>> PipelinesOf(int64_t pp, int64_t num_layers) {
  if (pp == 1) return {{Schedule::k1F1B, 1}};
  std::vector<std::pair<Schedule, int64_t>> pipelines = {{Schedule::k1F1B, 1}};
  for (int64_t vp = 2; vp <= num_layers; ++vp) {
    if (num_layers % (vp * pp) == 0) pipelines.push_back({Schedule::kInterleaved1F1B, vp});
  }
  pipelines.push_back({Schedule::kZeroBubble, 1});
  pipelines.push_back({Schedule::kGpipe, 1});
  return pipelines;
}

/// The ranks of a replica that fills a node; 0 where a node has all ranks, or one of them.
int64_t ShardWithinNode(const Problem& problem, const ParallelConfig& layout) {
  const int64_t node = problem.cluster.ranks_per_node;
  const int64_t ranks = layout.cp * layout.dp;
  if (layout.tp * ranks <= node) return 0;
  for (int64_t shard = ranks - 1; shard > 1; --shard) {
    if (ranks % shard == 0 && shard * layout.tp <= node) return shard;
  }
  return 0;
}

/// The cuts of sequences over `ranks` ranks at most: context parallel sizes and their messages.
std::vector<std::pair<int64_t, CpCommType>> CutsOf(int64_t ranks, int64_t sequence_length) {
  std::vector<std::pair<int64_t, CpCommType>> cuts = {{1, CpCommType::kP2p}};
  for (int64_t cp = 2; cp <= ranks && 2 * cp <= sequence_length; ++cp) {
    if (ranks % cp != 0) continue;
    cuts.push_back({cp, CpCommType::kP2p});
    cuts.push_back({cp, CpCommType::kAllGather});
  }
  return cuts;
}

/// Looks at every way to shard. Messages overlap with ops on GPUs only.
void LookAtSharding(const Problem& problem, RunConfig run, Expected& expected) {
  const bool gpus = problem.cluster.device == DeviceKind::kCuda;
  for (run.layout.zero = 0; run.layout.zero <= 3; ++run.layout.zero) {
    const int64_t zero = run.layout.zero;
    for (const bool hybrid : {false, true}) {
      run.layout.shard = hybrid ? ShardWithinNode(problem, run.layout) : 0;
      if (hybrid && (zero == 0 || run.layout.shard == 0)) continue;
      for (const bool reshard : {true, false}) {
        if (!reshard && zero != 3) continue;
        run.layout.reshard_after_forward = reshard;
        for (const bool gather : {false, true}) {
          if (gather && (!gpus || zero == 0 || zero == 3)) continue;
          run.layout.overlap_param_gather = gather;
          expected.Look(run);
        }
      }
    }
  }
}

/// Every set of modules, but that a whole MLP needs no part of it besides; of `full`, some of the
/// layers of a chunk, or all, or groups of them.
std::vector<std::string> RecomputePlansOf(const Problem& problem, const ParallelConfig& layout) {
  std::vector<std::string> plans = {"none", "full"};
  for (const char* attention : {"", "core_attn+"}) {
    for (const char* norms : {"", "layernorm+"}) {
      for (const char* mlp : {"", "mlp_act+", "mlp+"}) {
        for (const char* logits : {"", "logits+"}) {
          std::string set = std::string(attention) + norms + mlp + logits;
          if (set.empty()) continue;
          set.pop_back();
          plans.push_back("selective:" + set);
        }
      }
    }
  }
  const int64_t layers = CeilDiv(problem.model.num_layers, layout.pp * layout.vp);
  for (int64_t count = 1; count <= layers; ++count) {
    if (count < layers) plans.push_back(fmt::format("full:block:{}", count));
    if (count > 1) plans.push_back(fmt::format("full:uniform:{}", count));
  }
  return plans;
}

/// Looks at what does not change the groups of ranks.
void LookAtVariants(const Problem& problem, RunConfig run, Expected& expected) {
  const bool fp8 = run.layout.numerics.precision == Precision::kFp8;
  const bool overlaps = problem.cluster.device == DeviceKind::kCuda && run.layout.tp > 1 && !fp8;
  for (int64_t mbs = 1; mbs <= problem.max_micro_batch; ++mbs) {
    if (problem.global_batch % mbs != 0) continue;
    run.layout.micro_batch = mbs;
    for (const int64_t chunks : {1, 2, 4}) {
      if (chunks > 1 && !overlaps) continue;
      run.layout.tp_overlap_chunks = chunks;
      for (const std::string& recompute : RecomputePlansOf(problem, run.layout)) {
        run.layout.recompute = ParseRecompute(recompute, "");
        LookAtSharding(problem, run, expected);
      }
    }
  }
}

/// Looks at every pipeline, `ranks` being what is left of them for stages and replicas.
void LookAtPipelines(const Problem& problem, RunConfig run, int64_t ranks, Expected& expected) {
  for (run.layout.pp = 1; run.layout.pp <= problem.model.num_layers; ++run.layout.pp) {
    if (ranks % run.layout.pp != 0) continue;
    run.layout.dp = ranks / run.layout.pp;
    for (const auto& [schedule, vp] : PipelinesOf(run.layout.pp, problem.model.num_layers)) {
      run.layout.schedule = schedule;
      run.layout.vp = vp;
      LookAtVariants(problem, run, expected);
    }
  }
}

Expected TheLongWay(const Problem& problem, const std::vector<int64_t>& world_sizes) {
  Expected expected;
  RunConfig run;
  run.model = problem.model;
  run.device = problem.cluster.device;
  run.global_batch = problem.global_batch;
  run.sequence_length = problem.sequence_length;
  run.layout.numerics.precision = problem.precisions.front();
  for (const int64_t ranks : world_sizes) {
    for (run.layout.tp = 1; run.layout.tp <= ranks; ++run.layout.tp) {
      if (ranks % run.layout.tp != 0) continue;
      for (const bool sp : {false, true}) {
        if (sp && run.layout.tp == 1) continue;
        run.layout.sequence_parallel = sp;
        for (const auto& [cp, messages] : CutsOf(ranks / run.layout.tp, problem.sequence_length)) {
          run.layout.cp = cp;
          run.layout.cp_comm_type = messages;
          LookAtPipelines(problem, run, ranks / run.layout.tp / cp, expected);
        }
      }
    }
  }
  return expected;
}

void ExpectWalk(const Problem& problem, const std::vector<int64_t>& world_sizes) {
  Expected expected = TheLongWay(problem, world_sizes);
  std::vector<std::string> legal;
  const SpaceCounts counts =
      WalkSpace(problem, [&](const RunConfig& run) { legal.push_back(CandidateKey(run)); });
  std::sort(legal.begin(), legal.end());
  std::sort(expected.legal.begin(), expected.legal.end());
  EXPECT_EQ(legal, expected.legal);
  EXPECT_EQ(counts.legal, static_cast<int64_t>(legal.size()));
  EXPECT_EQ(counts.enumerated, expected.enumerated);
  const std::map<std::string, int64_t> pruned(counts.pruned.begin(), counts.pruned.end());
  EXPECT_EQ(pruned, expected.pruned);
}

// Whole branches are pruned at once; what is left and what is counted is as if each candidate had
// been looked at.
TEST(Space, PruningBranchesCountsWhatLookingAtEachWouldCount) {
  ExpectWalk(TinyProblem(), {1, 2, 4});

  Problem odd = TinyProblem();
  odd.model.num_heads = 6;
  odd.model.num_kv_heads = 3;
  odd.model.hidden_size = 48;
  odd.model.ffn_hidden_size = 50;
  odd.global_batch = 12;
  odd.sequence_length = 15;
  odd.max_ranks = 16;
  ExpectWalk(odd, {1, 2, 4, 8, 16});

  Problem fp8 = odd;
  fp8.cluster.device = DeviceKind::kCuda;
  fp8.cluster.max_ranks = 12;
  fp8.precisions = {Precision::kFp8};
  ExpectWalk(fp8, {12});

  Problem bf16 = fp8;
  bf16.precisions = {Precision::kBf16};
  ExpectWalk(bf16, {12});
}

TEST(Space, AModelThatNoLayoutCanMendHasNone) {
  Problem wrong = TinyProblem();
  wrong.model.num_heads = 3;
  EXPECT_THROW(LegalCandidates(wrong), InfeasibleError);
  wrong = TinyProblem();
  wrong.model.moe = {.num_experts = 2, .router_topk = 4};
  EXPECT_THROW(LegalCandidates(wrong), InfeasibleError);
}

TEST(Space, HoldsEveryCombinationOnce) {
  // Two layers, so pipelines have two stages and three schedules; and there are two ways to the
  // keys of others. Shapes of 1 rank: 1. Of 2 without tp: dp2, pp2 (3), cp2 (2), so 6; with tp2 (sp
  // off, on) those of 1 rank, twice: 8. Of 4 without tp: dp4, pp2 (3), cp2 (2) dp2, cp2 (2) pp2
  // (3), cp4 (2), so 14; with tp2 those of 2 without, twice; tp4 (2): 28. Of these, pipelines are
  // none, 3, and 9 + 2 * 3. Each with micro batch 1, 2, 4; the plans of recompute: none, full, 23
  // sets of modules, and where a stage has both layers, one of them or both together; and four
  // stages of sharding, the last with and without resharding.
  constexpr int64_t kPipelines = 3 + 15;
  constexpr int64_t kOthers = 1 + 8 + 28 - kPipelines;
  EXPECT_EQ(Count(TinyProblem()).enumerated, (kPipelines * 25 + kOthers * 27) * 3 * 5);
  const std::vector<RunConfig> candidates = LegalCandidates(TinyProblem());
  std::set<std::string> keys;
  for (const RunConfig& run : candidates) keys.insert(CandidateKey(run));
  EXPECT_EQ(keys.size(), candidates.size());
}

// On up to 4 ranks without tp or pipeline: ep is 1, or with two ranks or more 2, or with four 4,
// each of those above 1 in both forms of dispatch.
TEST(Space, LaysOutExpertsInEveryWay) {
  Problem problem = TinyProblem();
  problem.model.moe = {.num_experts = 4, .router_topk = 1, .ffn_hidden_size = 16};
  std::map<std::string, std::set<std::string>> ways;  // of experts, by the rest of the shape
  for (const RunConfig& run : LegalCandidates(problem)) {
    const ParallelConfig& p = run.layout;
    EXPECT_TRUE(p.tp == 1 || p.sequence_parallel);
    ways[fmt::format("tp={},cp={},pp={},dp={}", p.tp, p.cp, p.pp, p.dp)].insert(
        fmt::format("{}/{}/{}", p.ep, p.etp, Name(p.dispatch)));
  }
  using Ways = std::set<std::string>;
  EXPECT_EQ(ways.at("tp=1,cp=1,pp=1,dp=1"), (Ways{"1/1/alltoall"}));
  EXPECT_EQ(ways.at("tp=1,cp=1,pp=1,dp=2"),
            (Ways{"1/1/alltoall", "2/1/alltoall", "2/1/allgather"}));
  EXPECT_EQ(ways.at("tp=1,cp=2,pp=1,dp=2"), (Ways{"1/1/alltoall", "2/1/alltoall", "2/1/allgather",
                                                  "4/1/alltoall", "4/1/allgather"}));
  EXPECT_EQ(ways.at("tp=2,cp=1,pp=1,dp=1"), (Ways{"1/1/alltoall", "2/1/alltoall", "2/1/allgather",
                                                  "1/2/alltoall", "1/2/allgather"}));
  EXPECT_EQ(ways.at("tp=1,cp=1,pp=2,dp=1"), (Ways{"1/1/alltoall"})) << "a stage of one rank";
}

TEST(Space, WhatTheEngineCannotRunYetIsNoPartOfIt) {
  for (const auto& [id, count] : Count(TinyProblem()).pruned) {
    EXPECT_FALSE(id.ends_with("-unsupported")) << id << " pruned " << count;
  }
}

TEST(Space, SharesTheCoresAmongTheRanks) {
  for (const RunConfig& run : LegalCandidates(TinyProblem())) {
    const int64_t ranks = run.layout.world_size();
    EXPECT_EQ(run.threads_per_rank, ranks == 1 ? 2 : 1);
    EXPECT_EQ(run.memory_per_rank_bytes, (int64_t{8} << 30) / ranks);
  }
}

TEST(Space, LimitsAreRespected) {
  Problem problem = TinyProblem();
  problem.max_ranks = 3;
  problem.max_micro_batch = 2;
  problem.memory_per_rank_bytes = 12345;
  for (const RunConfig& run : LegalCandidates(problem)) {
    EXPECT_LE(run.layout.world_size(), 2);
    EXPECT_LE(run.layout.micro_batch, 2);
    EXPECT_EQ(run.memory_per_rank_bytes, 12345);
  }
}

TEST(Space, GpusAreAllUsed) {
  Problem problem = TinyProblem();
  problem.cluster.device = DeviceKind::kCuda;
  problem.cluster.max_ranks = 6;
  problem.model.num_heads = 12;
  problem.model.num_kv_heads = 12;
  problem.model.hidden_size = 96;
  problem.model.ffn_hidden_size = 192;
  problem.global_batch = 12;
  std::set<int64_t> tensor_parallel;
  for (const RunConfig& run : LegalCandidates(problem)) {
    EXPECT_EQ(run.layout.world_size(), 6);
    EXPECT_EQ(run.memory_per_rank_bytes, problem.cluster.memory_bytes);
    tensor_parallel.insert(run.layout.tp);
  }
  EXPECT_EQ(tensor_parallel, (std::set<int64_t>{1, 2, 3, 6}));
}

TEST(Space, HoldsEveryPrecisionAndOptimizerStateOnce) {
  const SpaceCounts once = Count(TinyProblem());
  Problem problem = TinyProblem();
  problem.precisions = {Precision::kFp32, Precision::kBf16};
  problem.optimizer_states = {"full", "minimal", "remainder/bf16/bf16"};
  std::map<std::string, int64_t> found;
  const SpaceCounts counts = WalkSpace(problem, [&](const RunConfig& run) {
    ++found[fmt::format("{} {}", Name(run.layout.numerics.precision),
                        OptimizerStateName(run.layout.numerics))];
  });
  // The last two states are one under bf16; fp32 has neither remainders nor bf16 gradients, and
  // the state written out is left to the rules to refuse.
  const std::map<std::string, int64_t> expected = {{"fp32 full", once.legal},
                                                   {"fp32 reduced", once.legal},
                                                   {"bf16 full", once.legal},
                                                   {"bf16 minimal", once.legal}};
  EXPECT_EQ(found, expected);
  EXPECT_EQ(counts.enumerated, 5 * once.enumerated);
  EXPECT_EQ(counts.pruned.front(),
            (std::pair<std::string, int64_t>{"remainder-requires-bf16-weights", once.enumerated}));

  problem.optimizer_states = {"auto"};
  std::set<std::string> keys;
  const std::vector<RunConfig> all = LegalCandidates(problem);
  for (const RunConfig& run : all) keys.insert(CandidateKey(run));
  EXPECT_EQ(static_cast<int64_t>(all.size()), (4 + 16) * once.legal);
  EXPECT_EQ(keys.size(), all.size());
}

// 735134400 has 1344 divisors. Nothing is stored, and branches are counted rather than visited.
TEST(Space, MillionsAreWalked) {
  Problem problem = TinyProblem();
  problem.cluster.device = DeviceKind::kCuda;
  problem.cluster.max_ranks = 8;
  problem.global_batch = problem.max_micro_batch = 735134400;
  problem.optimizer_states = {"auto"};
  int64_t visited = 0;
  const SpaceCounts counts = WalkSpace(problem, [&](const RunConfig&) { ++visited; });
  EXPECT_GT(counts.enumerated, 1'000'000);
  EXPECT_EQ(counts.legal, visited);
  EXPECT_GT(visited, 100'000);
  int64_t pruned = 0;
  for (const auto& [id, count] : counts.pruned) pruned += count;
  EXPECT_EQ(counts.legal + pruned, counts.enumerated);
}

TEST(Space, ThePricesAreNotPartOfTheProblem) {
  Problem problem = TinyProblem();
  const nlohmann::json before = ToJson(problem);
  problem.cluster.profile.name = "recalibrated";
  EXPECT_EQ(ToJson(problem), before);
  problem.global_batch = 8;
  EXPECT_NE(ToJson(problem), before);
}

TEST(Space, OfSeveralGlobalBatchesHoldsThatOfEach) {
  std::set<std::string> of_each;
  int64_t enumerated = 0;
  for (const int64_t batch : {3, 4}) {
    Problem problem = TinyProblem();
    problem.global_batch = batch;
    enumerated += Count(problem).enumerated;
    for (const RunConfig& run : LegalCandidates(problem)) of_each.insert(CandidateKey(run, true));
  }
  Problem both = TinyProblem();
  both.global_batches = {3, 4};
  EXPECT_EQ(Count(both).enumerated, enumerated);
  std::set<std::string> keys;
  for (const RunConfig& run : LegalCandidates(both)) keys.insert(CandidateKey(run, true));
  EXPECT_EQ(keys, of_each);
  EXPECT_TRUE(keys.begin()->starts_with("gbs=3,")) << *keys.begin();
  EXPECT_NE(ToJson(both), ToJson(TinyProblem()));
}

// A rule that names the framework removes options that the framework lacks.
TEST(Space, OfAStackHasWhatItsFrameworkHas) {
  Problem problem = TinyProblem();
  const SpaceCounts all = Count(problem);
  problem.cluster.stack.name = "another";
  problem.cluster.stack.options = {{"zero", {"0", "2"}}};
  const SpaceCounts some = Count(problem);
  EXPECT_EQ(some.enumerated, all.enumerated);
  EXPECT_LT(some.legal, all.legal);
  EXPECT_EQ(some.pruned.back().first, "another-has-no-such-zero");
  EXPECT_EQ(WalkSpace(problem).legal, some.legal);
  for (const RunConfig& run : LegalCandidates(problem)) {
    EXPECT_TRUE(run.layout.zero == 0 || run.layout.zero == 2) << ToString(run.layout);
    EXPECT_EQ(run.stack, "another");
  }
}

TEST(Space, OfAStackHasThePlansThatItsFrameworkHas) {
  Problem problem = TinyProblem();
  problem.cluster.stack.name = "another";
  problem.cluster.stack.options = {{"recompute", {"none", "full"}}};
  const SpaceCounts counts = Count(problem);
  EXPECT_GT(counts.legal, 0);
  EXPECT_EQ(counts.pruned.back().first, "another-has-no-such-recompute");
  EXPECT_EQ(WalkSpace(problem).legal, counts.legal);
  for (const RunConfig& run : LegalCandidates(problem)) {
    EXPECT_NE(run.layout.recompute[0].kind, RecomputeKind::kSelective) << ToString(run.layout);
  }
}

TEST(Space, OfEveryStackIsNotEmpty) {
  for (const SoftwareStack& stack : BuiltinStacks()) {
    Problem problem = TinyProblem();
    problem.cluster.stack = stack;
    EXPECT_GT(WalkSpace(problem).legal, 0) << stack.name;
  }
}

TEST(Space, OfAStackWhoseOptionsAreNoneIsRefused) {
  Problem problem = TinyProblem();
  problem.cluster.stack.name = "another";
  problem.cluster.stack.options = {{"zeros", {"0"}}};
  EXPECT_THROW(WalkSpace(problem), InputError);
  problem.cluster.stack.options = {{"zero", {"7"}}};
  EXPECT_THROW(WalkSpace(problem), InputError);
}

TEST(Space, RefusesAnEmptyBatchAndNoPrecision) {
  Problem problem = TinyProblem();
  problem.global_batch = 0;
  EXPECT_THROW(Count(problem), UsageError);
  problem.global_batches = {4, 0};
  EXPECT_THROW(Count(problem), UsageError);
  problem = TinyProblem();
  problem.precisions.clear();
  EXPECT_THROW(Count(problem), UsageError);
}

}  // namespace
}  // namespace trimtab
