#include "search/space.h"

#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "cost_model/numerics.h"
#include "engine/base/error.h"
#include "engine/config/rules.h"
#include "tests/search/search_fakes.h"

namespace trimtab {
namespace {

TEST(Space, HoldsEveryCombinationOnce) {
  const std::vector<RunConfig> candidates = EnumerateCandidates(TinyProblem());
  // Shapes: 1 rank: tp1; 2: tp1, tp2 (sp off, on); 4: tp1, tp2 (2), tp4 (2). Each with micro batch
  // 1, 2, 4, two kinds of recompute, two of sharding.
  EXPECT_EQ(candidates.size(), (1u + 3u + 5u) * 3 * 2 * 2);
  std::set<std::string> keys;
  for (const RunConfig& run : candidates) keys.insert(CandidateKey(run));
  EXPECT_EQ(keys.size(), candidates.size());
}

TEST(Space, SharesTheCoresAmongTheRanks) {
  for (const RunConfig& run : EnumerateCandidates(TinyProblem())) {
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
  for (const RunConfig& run : EnumerateCandidates(problem)) {
    EXPECT_LE(run.layout.world_size(), 2);
    EXPECT_LE(run.layout.micro_batch, 2);
    EXPECT_EQ(run.memory_per_rank_bytes, 12345);
  }
}

TEST(Space, GpusAreAllUsed) {
  Problem problem = TinyProblem();
  problem.cluster.device = "cuda";
  problem.cluster.max_ranks = 6;
  std::set<int64_t> tensor_parallel;
  for (const RunConfig& run : EnumerateCandidates(problem)) {
    EXPECT_EQ(run.layout.world_size(), 6);
    EXPECT_EQ(run.memory_per_rank_bytes, problem.cluster.memory_bytes);
    tensor_parallel.insert(run.layout.tp);
  }
  EXPECT_EQ(tensor_parallel, (std::set<int64_t>{1, 2, 3, 6}));
}

TEST(Space, HoldsEveryPrecisionAndOptimizerStateOnce) {
  const size_t once = EnumerateCandidates(TinyProblem()).size();
  Problem problem = TinyProblem();
  problem.precisions = {Precision::kFp32, Precision::kBf16};
  problem.optimizer_states = {"full", "minimal", "remainder/bf16/bf16"};
  std::map<std::string, size_t> count;
  for (const RunConfig& run : EnumerateCandidates(problem)) {
    ++count[fmt::format("{} {}", Name(run.layout.precision), OptimizerStateName(run.layout))];
  }
  // The last two states are one under bf16; fp32 has neither remainders nor bf16 gradients, and
  // the state written out is left to the rules to refuse.
  const std::map<std::string, size_t> expected = {{"fp32 full", once},
                                                  {"fp32 reduced", once},
                                                  {"fp32 remainder/bf16/bf16", once},
                                                  {"bf16 full", once},
                                                  {"bf16 minimal", once}};
  EXPECT_EQ(count, expected);

  problem.optimizer_states = {"auto"};
  std::set<std::string> keys;
  const std::vector<RunConfig> all = EnumerateCandidates(problem);
  for (const RunConfig& run : all) keys.insert(CandidateKey(run));
  EXPECT_EQ(all.size(), (3 + 12) * once);
  EXPECT_EQ(keys.size(), all.size());
}

TEST(Space, SomeCandidatesAreLegalAndSomeAreNot) {
  int64_t legal = 0;
  const std::vector<RunConfig> candidates = EnumerateCandidates(TinyProblem());
  for (const RunConfig& run : candidates) legal += FirstBrokenRule(run) == nullptr ? 1 : 0;
  EXPECT_GT(legal, 10);
  EXPECT_LT(legal, static_cast<int64_t>(candidates.size()));
}

TEST(Space, ThePricesAreNotPartOfTheProblem) {
  Problem problem = TinyProblem();
  const nlohmann::json before = ToJson(problem);
  problem.cluster.profile.name = "recalibrated";
  EXPECT_EQ(ToJson(problem), before);
  problem.global_batch = 8;
  EXPECT_NE(ToJson(problem), before);
}

TEST(Space, RefusesAnEmptyBatchAndNoPrecision) {
  Problem problem = TinyProblem();
  problem.global_batch = 0;
  EXPECT_THROW(EnumerateCandidates(problem), UsageError);
  problem = TinyProblem();
  problem.precisions.clear();
  EXPECT_THROW(EnumerateCandidates(problem), UsageError);
}

}  // namespace
}  // namespace trimtab
