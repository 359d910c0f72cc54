#include "search/serving/serving_search.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/units.h"
#include "engine/families/load_config.h"
#include "search/serving/serving_findings.h"
#include "tests/engine/data/data_test_util.h"
#include "tests/search/serving/serving_problems.h"

namespace trimtab {
namespace {

/// Rounding to fp8 costs 1 % of perplexity, to bf16 nearly nothing.
ServingQuality QualityOfBf16AndFp8() {
  return {.of = "",
          .rises = {{{WeightFormat::kBf16, DType::kBf16}, 1.0002},
                    {{WeightFormat::kF8, DType::kBf16}, 1.01}}};
}

/// Every candidate that fits, simulated.
std::vector<ServingEvaluation> Exhaustive(const ServingProblem& problem) {
  std::vector<ServingEvaluation> all;
  for (const ServingBranch& branch : WalkServingSpace(problem).branches) {
    for (const ServingCandidate& each : branch.candidates) {
      try {
        all.push_back(EvaluateServing(problem, each));
      } catch (const InfeasibleError&) {  // does not fit
      }
    }
  }
  return all;
}

class ServingSearchTest : public testing::TestWithParam<int> {};

// The best of the search is the best of all, its counts add up, and its memory is within the limit.
TEST_P(ServingSearchTest, FindsWhatLookingAtEachFinds) {
  std::mt19937_64 random(static_cast<uint64_t>(GetParam()));
  ServingProblem problem = ProblemOn("2xh100", "llama3-8b", RandomLoad(random));
  problem.objective = kServingObjectives[random() % 4];
  Allow(problem, "tokens", {"128", "1024", "8192"});
  problem.memory_bytes = 10'000'000'000 + static_cast<int64_t>(random() % 8) * 1'000'000'000;
  problem.quality = QualityOfBf16AndFp8();
  const char* requirements[] = {"",
                                "ttft.p99<300ms",
                                "tpot.mean<9ms,ttft.mean<150ms",
                                "throughput>400",
                                "tpot.p99<1ms",
                                "perplexity<1.005x",
                                "tpot.mean<9ms,perplexity<1.005x"};
  problem.requirements = ParseRequirements(requirements[random() % 7]);
  if (GetParam() % 4 < 2) Allow(problem, "prefill", {"0", "1"});
  if (GetParam() % 2 == 1) {
    problem.memory_bytes += 6'000'000'000;
    Allow(problem, "pp", {"1"});
    Allow(problem, "tokens", {"128", "8192"});
    Speculate(random, problem);
  }
  const std::vector<ServingEvaluation> all = Exhaustive(problem);
  if (all.empty()) {
    EXPECT_THROW(SearchServing(problem, 2), InfeasibleError);
    return;
  }
  const ServingSearchResult result = SearchServing(problem, 2);
  ServingRank best = all.front().rank;
  for (const ServingEvaluation& each : all) best = std::min(best, each.rank);
  EXPECT_EQ(result.best().rank.strain, best.strain);
  EXPECT_EQ(result.best().rank.score, best.score);
  EXPECT_EQ(result.best().rank.among_equals, best.among_equals);
  const ServingRank third = result.ranking[std::min<size_t>(2, result.ranking.size() - 1)].rank;
  for (const ServingEvaluation& each : all) {
    const auto ranks_so = [&](const ServingEvaluation& other) { return other.rank == each.rank; };
    EXPECT_TRUE(each.rank >= third || std::ranges::any_of(result.ranking, ranks_so))
        << each.candidate.Key() << " is left out, and is better than the third";
  }
  int64_t sum = result.cut_by_memory + result.cut_by_bound + result.cut_on_the_way + result.alike +
                result.simulated;
  for (const auto& [rule, count] : result.cut_by_rule) sum += count;
  EXPECT_EQ(sum, result.size);
  EXPECT_EQ(std::ssize(result.ranking), result.simulated);
  for (const ServingEvaluation& each : result.ranking) {
    EXPECT_LE(each.memory.total(), problem.memory_bytes);
    EXPECT_LE(each.prediction.most_blocks, each.candidate.config.cache_blocks);
    EXPECT_LE(each.prediction.most_running, each.candidate.config.limits.sequences);
  }
}

#ifdef TRIMTAB_EXHAUSTIVE
constexpr int kProblems = 1200;
#else
constexpr int kProblems = 8;
#endif
INSTANTIATE_TEST_SUITE_P(Problems, ServingSearchTest, testing::Range(0, kProblems));

// Fewer layers than ranks: the rest are replicas, or stay idle.
TEST(ServingSearch, TakesMoreRanksThanAModelHasLayers) {
  std::mt19937_64 random(1);
  ServingProblem problem = ProblemOn("16xh100", "llama3-8b", RandomLoad(random));
  problem.model.num_layers = 2;
  Allow(problem, "tokens", {"1024"});
  Allow(problem, "prefill", {"0"});
  Allow(problem, "weights", {"bf16"});
  const ServingSearchResult result = SearchServing(problem, 1);
  EXPECT_FALSE(result.ranking.empty());
  problem.max_ranks = 1000;
  EXPECT_EQ(problem.ranks(), 16) << "no more than there are";
}

// The same requests in less time wait longer for their first token.
TEST(ServingPrediction, MoreRateIsNeverFaster) {
  const ServingProblem problem =
      ProblemOn("2xh100", "llama3-8b", {.requests = DrawRequests("uniform:20-900/50", 200, 1, 5)});
  double last = 0;
  for (const double rate : {1.0, 4.0, 16.0, 64.0}) {
    ServingProblem faster = problem;
    for (LoadRequest& each : faster.load.requests) each.at_s /= rate;
    const ServingCandidate candidate =
        ParseServingCandidate(faster, "tp=1,sequences=64,tokens=512");
    const double ttft = EvaluateServing(faster, candidate).prediction.report.ttft.mean;
    EXPECT_GE(ttft, last) << rate;
    last = ttft;
  }
}

// Requests pile up where GPUs are few: that is seen before all of them have been served.
TEST(ServingSearch, EndsSimulationsThatCannotKeepUp) {
  ServingProblem problem = ProblemOn(
      "8xh100", "llama3-8b", {.requests = DrawRequests("uniform:500-2000/200", 400, 60, 3)});
  problem.requirements = ParseRequirements("ttft.p99<500ms");
  Allow(problem, "tp", {"1"});
  Allow(problem, "pp", {"1"});
  Allow(problem, "tokens", {"512", "4096"});
  Allow(problem, "weights", {"bf16"});
  Allow(problem, "sequences", {"64", "256"});
  const ServingSearchResult result = SearchServing(problem, 2);
  EXPECT_TRUE(result.best().meets());
  EXPECT_GT(result.cut_on_the_way, 0);
  const ServingSearchResult alone = SearchServing(problem, 1);
  EXPECT_EQ(alone.cut_on_the_way, result.cut_on_the_way);
  ASSERT_EQ(alone.ranking.size(), result.ranking.size());
  for (size_t i = 0; i < alone.ranking.size(); ++i) {
    EXPECT_EQ(alone.ranking[i].candidate.Key(), result.ranking[i].candidate.Key());
    EXPECT_EQ(alone.ranking[i].rank, result.ranking[i].rank);
  }
}

// What prompts share is computed once; where they share nothing there is nothing to choose.
TEST(ServingSearch, ACacheOfBeginningsPaysWhereTheyAreShared) {
  ServingProblem problem = ProblemOn(
      "1xh100", "llama3-8b", {.requests = DrawRequests("1000/20", 60, 0, 1), .concurrency = 8});
  Allow(problem, "sequences", {"8"});
  const int64_t without = WalkServingSpace(problem).size;
  EXPECT_TRUE(SearchServing(problem, 1).best().candidate.config.prefix_cache);
  ShareBeginnings(800, problem.load.requests);
  EXPECT_EQ(WalkServingSpace(problem).size, 2 * without);
  EXPECT_TRUE(SearchServing(problem, 1).best().candidate.config.prefix_cache);
  const auto rate = [&](const char* key) {
    return EvaluateServing(problem, ParseServingCandidate(problem, key))
        .prediction.report.output_tokens_per_s();
  };
  EXPECT_GT(rate("sequences=8"), 1.3 * rate("sequences=8,prefix=off"));
}

// Of what a draft model proposes, only what stands is worth its time.
TEST(ServingSearch, ADraftPaysWhereItsTokensStand) {
  ServingProblem problem = ProblemOn(
      "1xh100", "llama3-8b", {.requests = DrawRequests("200/200", 12, 0, 1), .concurrency = 2});
  const int64_t without = WalkServingSpace(problem).size;
  problem.draft = LoadModelConfig("llama3.2-1b");
  Allow(problem, "tokens", {"512"});
  Allow(problem, "sequences", {"2"});
  problem.objective = Objective::kLatency;
  for (const double acceptance : {0.05, 0.9}) {
    problem.draft_acceptance = acceptance;
    const ServingSearchResult found = SearchServing(problem, 1);
    EXPECT_EQ(found.best().candidate.config.draft.tokens > 0, acceptance > 0.5);
    EXPECT_EQ(found.best().memory.draft > 0, acceptance > 0.5);
    EXPECT_EQ(found.best().candidate.Key(),
              ParseServingCandidate(problem, found.best().candidate.Key()).Key());
  }
  problem.lookup_acceptance = 0.5;
  problem.narrowings.clear();
  const ServingSpace space = WalkServingSpace(problem);
  EXPECT_EQ(space.size, 25 * without);
  EXPECT_EQ(space.cut_by_rule.at("serving-speculation"), 16 * without);
  problem.lookup_acceptance.reset();
  EXPECT_THROW(ParseServingCandidate(problem, "lookup=2"), UsageError);
}

// Long prompts that come while answers go on: apart they hold up nobody but while their small cache
// is copied, and what is fast for both needs replicas of both kinds.
TEST(ServingSearch, PromptsApartPayWhereNoTokenMayWait) {
  ServingProblem problem = ProblemOn(
      "4xh100", "deepseek-v2-lite", {.requests = DrawRequests("uniform:2000-4000/200", 120, 8, 1)});
  Allow(problem, "tp", {"1"});
  Allow(problem, "pp", {"1"});
  Allow(problem, "replicas", {"4"});
  Allow(problem, "weights", {"bf16"});
  const auto best_of = [&](const std::vector<std::string>& prefill) {
    Allow(problem, "prefill", prefill);
    return SearchServing(problem, 2).best();
  };
  problem.requirements = ParseRequirements("itl.p99<36ms,ttft.mean<220ms");
  EXPECT_FALSE(best_of({"0"}).meets());
  const ServingEvaluation apart = best_of({"0", "1", "2", "3"});
  EXPECT_TRUE(apart.meets());
  EXPECT_GT(apart.candidate.config.prefill, 0);
  EXPECT_EQ(apart.prediction.moved, 120);
  EXPECT_GT(apart.prediction.copy_s, 0);
  EXPECT_EQ(ParseServingCandidate(problem, apart.candidate.Key()).Key(), apart.candidate.Key());
}

TEST(ServingSearch, CountsPromptsApartFromNobody) {
  ServingProblem problem = ProblemOn(
      "2xh100", "llama3-8b", {.requests = DrawRequests("500/20", 30, 0, 1), .concurrency = 8});
  Allow(problem, "tp", {"1"});
  Allow(problem, "pp", {"1"});
  Allow(problem, "prefill", {"1"});
  const ServingSpace space = WalkServingSpace(problem);
  EXPECT_GT(space.cut_by_rule.at("serving-prefill"), 0);
  for (const ServingBranch& branch : space.branches) {
    for (const ServingCandidate& each : branch.candidates) EXPECT_EQ(each.gpus(), 2) << each.Key();
  }
  EXPECT_THROW(ParseServingCandidate(problem, "prefill=1"), InfeasibleError);
  EXPECT_THROW(ParseServingCandidate(problem, "replicas=2,prefill=2"), InfeasibleError);
}

/// Of long answers, which read the weights again and again: the fewer bits these have, the better.
ServingProblem ProblemOfQuality(const char* requirements) {
  ServingProblem problem = ProblemOn(
      "1xh100", "llama3-8b", {.requests = DrawRequests("20/100", 30, 0, 1), .concurrency = 8});
  problem.requirements = ParseRequirements(requirements);
  problem.quality = QualityOfBf16AndFp8();
  return problem;
}

TEST(ServingSearch, KeepsToALimitOfQuality) {
  const ServingSearchResult free = SearchServing(ProblemOfQuality("perplexity<1.02x"), 1);
  EXPECT_EQ(free.best().candidate.config.weights, WeightFormat::kF8);
  EXPECT_FALSE(free.cut_by_rule.contains("perplexity<1.02x"));
  EXPECT_TRUE(free.held_back.empty());

  const ServingProblem problem = ProblemOfQuality("perplexity<1.005x");
  const ServingSearchResult result = SearchServing(problem, 1);
  EXPECT_TRUE(result.best().meets());
  EXPECT_EQ(result.best().candidate.config.weights, WeightFormat::kBf16);
  EXPECT_EQ(result.cut_by_rule.at("perplexity<1.005x"), result.size / 2);
  EXPECT_TRUE(result.held_back.contains({WeightFormat::kF8, DType::kBf16}));
}

TEST(ServingSearch, SaysWhichQualityWouldDo) {
  ServingProblem problem = ProblemOfQuality("tpot.mean<100s,perplexity<1.005x");
  problem.weights = {WeightFormat::kF8};
  const ServingSearchResult result = SearchServing(problem, 1);
  EXPECT_FALSE(result.best().meets());
  EXPECT_NEAR(result.best().rank.strain, 2, 1e-9);
  EXPECT_EQ(Relaxations(problem, result.best().candidate.config, result.best().prediction.report),
            std::vector<std::string>{"perplexity<1.0101x"});
  problem.quality.rises.clear();
  EXPECT_THROW(SearchServing(problem, 1), UsageError);
}

TEST(ServingSearch, SaysWhatComesClosest) {
  ServingProblem problem = ProblemOn(
      "1xh100", "llama3-8b", {.requests = DrawRequests("500/20", 30, 0, 1), .concurrency = 8});
  problem.requirements = ParseRequirements("tpot.mean<1ms,ttft.p99<100s");
  const ServingSearchResult result = SearchServing(problem, 1);
  EXPECT_FALSE(result.best().meets());
  const auto relaxed =
      Relaxations(problem, result.best().candidate.config, result.best().prediction.report);
  ASSERT_EQ(relaxed.size(), 1u);
  EXPECT_TRUE(relaxed[0].starts_with("tpot.mean<"));
}

TEST(ServingSpace, SaysWhatCannotBeChosen) {
  ServingProblem problem = ProblemOn(
      "1xh100", "llama3-8b", {.requests = DrawRequests("500/20", 3, 0, 1), .concurrency = 8});
  EXPECT_EQ(
      MessageOf<UsageError>([] { ParseAllNarrowings({}, {"weights=int9"}, {}, ServingKeys()); }),
      "--allow: weights: 'int9'; expected one of fp32, bf16, fp16, fp8, int8, int4; did you "
      "mean 'int8'?");
  EXPECT_THROW(ParseAllNarrowings({"tp=1", "2"}, {}, {}, ServingKeys()), UsageError);
  const std::map<std::pair<std::string, std::string>, std::string> refusals = {
      {{"weights", "int8"}, "--fix, --allow weights=int8: leaves none of bf16, fp8"},
      {{"tokens", "1000"},
       "--fix, --allow tokens=1000: leaves none of 64, 128, 256, 512, 1024, 2048, 4096, 8192, "
       "16384"},
  };
  for (const auto& [asked, message] : refusals) {
    problem.narrowings.clear();
    Allow(problem, asked.first, {asked.second});
    EXPECT_EQ(MessageOf<UsageError>([&] { WalkServingSpace(problem); }), message);
  }
  problem.narrowings.clear();
  Allow(problem, "tp", {"2"});
  EXPECT_EQ(MessageOf<InfeasibleError>([&] { WalkServingSpace(problem); }),
            "tp=2 needs 2 ranks; the cluster has 1");
  // A product of more than 64 bits.
  Allow(problem, "tp", {"16777216"});
  Allow(problem, "pp", {"16777216"});
  Allow(problem, "replicas", {"16777216"});
  EXPECT_THROW(WalkServingSpace(problem), InfeasibleError);
}

// Its messages would be priced over a link that they do not have.
TEST(ServingSpace, ALayerStaysWithinWhatTheLinkJoins) {
  const ServiceLoad load = {.requests = DrawRequests("500/20", 3, 0, 1), .concurrency = 8};
  ServingProblem problem = ProblemOn("2x8xh100", "llama3-8b", load);
  EXPECT_EQ(MessageOf<InfeasibleError>([&] { ParseServingCandidate(problem, "tp=16"); }),
            "serving-tp-in-node: tp=16, over a link that joins 8 ranks");
  EXPECT_NO_THROW(ParseServingCandidate(problem, "tp=8,pp=2"));
  problem = ProblemOn("4x4xgb200", "llama3-8b", load);
  EXPECT_NO_THROW(ParseServingCandidate(problem, "tp=8")) << "nodes of a rack are joined";
}

// With as many places as clients nobody waits, though a request that just came counts as waiting.
TEST(ServingFindings, SayThatRequestsWaitOnlyWhereTheyDo) {
  const ServingProblem problem = ProblemOn(
      "1xh100", "llama3-8b", {.requests = DrawRequests("500/20", 8, 0, 1), .concurrency = 2});
  const auto binds = [&](const std::string& key) {
    return WhatBinds(EvaluateServing(problem, ParseServingCandidate(problem, key)));
  };
  const std::string two = binds("sequences=2");
  EXPECT_EQ(two.find("wait"), std::string::npos) << two;
  EXPECT_EQ(two.find("fills up"), std::string::npos) << two;
  const std::string one = binds("sequences=1");
  EXPECT_NE(one.find("; requests wait for one of 1 places"), std::string::npos) << one;
  EXPECT_EQ(one.find("fills up"), std::string::npos) << one;
}

TEST(ServingCandidate, IsReadByItsKey) {
  const ServingProblem problem = ProblemOn(
      "8xh100", "llama3-8b", {.requests = DrawRequests("500/20", 3, 0, 1), .concurrency = 8});
  const std::string key =
      "tp=2,pp=1,ep=1,weights=fp8,cache=bf16,prefix=off,replicas=3,prefill=1,sequences=48,"
      "tokens=1000";
  EXPECT_EQ(ParseServingCandidate(problem, key).Key(), key);
  for (const char* bad : {"tp=0", "tp=x", "tpp=2", "tp=2,tp=2", "weights=fp9", "tp"}) {
    EXPECT_THROW(ParseServingCandidate(problem, bad), UsageError) << bad;
  }
  EXPECT_THROW(ParseServingCandidate(problem, "tp=8,replicas=2"), InfeasibleError);
  EXPECT_THROW(ParseServingCandidate(problem, "tp=3"), InfeasibleError);
}

}  // namespace
}  // namespace trimtab
