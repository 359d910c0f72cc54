// A search for serving as any search: its study, its race, its requirements and its report.
#include "search/serving/serving_workload.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "engine/base/error.h"
#include "engine/infer/serving_json.h"
#include "profiler/serving/serving_trial.h"
#include "search/driver.h"
#include "search/page/html.h"
#include "search/page/page.h"
#include "search/report.h"
#include "search/search_result.h"
#include "search/serving/serving_search.h"
#include "search/study/sqlite.h"
#include "tests/engine/data/data_test_util.h"
#include "tests/search/schema_check.h"
#include "tests/search/serving/serving_problems.h"

namespace trimtab {
namespace {

struct Killed {};

std::string Breach(const nlohmann::json& report) {
  std::ifstream file("search/report.schema.json");
  return SchemaBreach(nlohmann::json::parse(file), report);
}

/// Serves every configuration as it is predicted, but for one that is faster, and one that fails.
class FakeServer : public TrialRunner {
 public:
  explicit FakeServer(const ServingProblem& problem) : problem_(problem) {}

  TrialOutcome Run(const TrialRequest& request, const std::function<bool()>&) override {
    ++visits[request.job.key];
    const ServingTrial trial =
        ServingTrialFromJson(nlohmann::json::parse(request.job.config), "trial");
    EXPECT_EQ(trial.load, problem_.load);
    TrialResult result = {.attempt = request.attempt, .state = TrialState::kDone};
    if (request.job.key == failing) {
      result.state = TrialState::kOutOfMemory;
      result.message = "planned";
    } else {
      ServingCandidate candidate = {.config = trial.serving};
      LoadReport report = EvaluateServing(problem_, candidate).prediction.report;
      if (request.job.key == faster) report.duration_s *= 0.5;
      Measurement measurement;
      measurement.step_time_s = SecondsPerToken(report, trial.load);
      measurement.steps_measured = report.output_tokens;
      measurement.tokens_per_s = report.output_tokens_per_s();
      measurement.peak_mem_bytes = 1000;
      measurement.service = report;
      result.measurement = measurement;
    }
    ResultsFile(request.results_path).Append(result);
    return {.state = result.state, .exit_code = 0, .message = result.message, .seconds = 0.1};
  }

  std::map<std::string, int64_t> visits;
  std::string faster;
  std::string failing;

 private:
  const ServingProblem& problem_;
};

class ServingWorkloadTest : public testing::Test {
 protected:
  ServingWorkloadTest()
      : problem_(ProblemOn("2xh100", "llama3-8b",
                           {.requests = DrawRequests("300/20", 30, 0, 1), .concurrency = 8})),
        server_(problem_) {
    options_.study_path = ScratchFolder() + "/serving.db";
    options_.race.prove_count = 3;
    options_.threads = 1;
    Allow(problem_, "tokens", {"512", "2048"});
    Clear();
  }

  void Clear() const {
    for (const char* suffix : {"", ".results.jsonl", ".log", "-journal", ".lock"}) {
      std::filesystem::remove(options_.study_path + suffix);
    }
  }

  SearchResult Search() {
    ServingWorkload workload(problem_);
    SearchEvents events;
    return RunSearch(workload, options_, server_, events);
  }

  ServingProblem problem_;
  FakeServer server_;
  SearchOptions options_;
};

TEST_F(ServingWorkloadTest, TheBestPredictedIsRecommendedWithoutVisits) {
  options_.race.prove_count = 0;
  const SearchResult result = Search();
  const ServingSearchResult alone = SearchServing(problem_, 1, 16);
  EXPECT_EQ(result.recommended_candidate().key, alone.best().candidate.Key());
  EXPECT_EQ(result.space.size, alone.size);
  EXPECT_EQ(result.space.unexplored, 0);
  EXPECT_FALSE(result.partial);
  const nlohmann::json report = ReportJson(result);
  EXPECT_EQ(Breach(report), "");
  EXPECT_EQ(report["for"], "serving");
  EXPECT_EQ(ServingConfigFromJson(report["recommended"]["serving"], "report").layout,
            alone.best().candidate.config.layout);
  EXPECT_EQ(ReportJson(ResultFromStudy(*Study::OpenExisting(options_.study_path))), report);
}

TEST_F(ServingWorkloadTest, WhatIsMeasuredDecides) {
  const ServingSearchResult predicted = SearchServing(problem_, 1, 16);
  server_.faster = predicted.ranking[1].candidate.Key();
  const SearchResult result = Search();
  EXPECT_EQ(result.recommended_candidate().key, server_.faster);
  EXPECT_TRUE(result.recommendation.measured);
  EXPECT_EQ(result.race.end, RaceEnd::kSeparated);
  EXPECT_GE(server_.visits.at(server_.faster), 2);
  const nlohmann::json report = ReportJson(result);
  EXPECT_EQ(Breach(report), "");
  EXPECT_EQ(report["recommended"]["measured"]["service"]["failed"], 0);
}

TEST_F(ServingWorkloadTest, ItsPageHasARankingAsATrainingsHas) {
  options_.race.prove_count = 0;
  const SearchResult result = Search();
  const nlohmann::json report = ReportJson(result);
  const std::string html = ReportHtml(report, MakeFindings(result));
  const size_t frontier = html.find("<section id=\"frontier\">");
  const size_t ranking = html.find("<section id=\"ranking\">");
  ASSERT_LT(frontier, ranking);
  ASSERT_NE(ranking, std::string::npos);
  for (const nlohmann::json& row : report["ranking"]) {
    EXPECT_NE(html.find(LayoutHtml(row["layout"].get<std::string>()), ranking), std::string::npos);
  }
  EXPECT_NE(html.find("<th class=\"number\">TTFT p99, ms</th>", ranking), std::string::npos);
}

TEST_F(ServingWorkloadTest, WhatFailsIsReplaced) {
  const ServingSearchResult predicted = SearchServing(problem_, 1, 16);
  server_.failing = predicted.best().candidate.Key();
  const SearchResult result = Search();
  EXPECT_NE(result.recommended_candidate().key, server_.failing);
  EXPECT_EQ(server_.visits.at(server_.failing), 1);
}

// A killed search goes on with the visits that are missing, and repeats none that is on disk.
TEST_F(ServingWorkloadTest, AKillLosesNothing) {
  const SearchResult whole = Search();
  const std::map<std::string, int64_t> visits = server_.visits;
  for (const int kill : {3, 6, 9, 12}) {
    Clear();
    server_.visits.clear();
    int writes = 0;
    options_.study.resume = false;
    options_.study.after_write = [&] {
      if (++writes == kill) throw Killed();
    };
    EXPECT_THROW(Search(), Killed);
    options_.study.after_write = nullptr;
    options_.study.resume = true;
    EXPECT_EQ(Search().recommended_candidate().key, whole.recommended_candidate().key) << kill;
    int64_t more = 0;
    for (const auto& [key, count] : server_.visits) more += count - visits.at(key);
    EXPECT_LE(more, 1) << kill;
  }
}

TEST_F(ServingWorkloadTest, AStudyIsOfOneProblemAndOneWorkload) {
  Search();
  options_.study.resume = true;
  problem_.load.requests.pop_back();
  EXPECT_THROW(Search(), InputError);
  EXPECT_EQ(Study::OpenExisting(options_.study_path)->workload(), "serving");
}

TEST_F(ServingWorkloadTest, ADamagedStudyIsRefused) {
  Search();
  Database(options_.study_path, Access::kWrite)
      .Execute("UPDATE predictions SET detail = json_remove(detail, '$.service')");
  EXPECT_THROW(Study::OpenExisting(options_.study_path), StorageError);
}

// Figures follow the objective that the search is asked for, also where its space is known already.
TEST_F(ServingWorkloadTest, AResumedSearchCountsTheSameSeconds) {
  options_.race.objective = Objective::kLatency;
  const SearchResult first = Search();
  options_.study.resume = true;
  const SearchResult again = Search();
  EXPECT_EQ(ReportJson(again), ReportJson(first));
  const CandidateRecord& best = again.recommended_candidate();
  EXPECT_NEAR(best.visits.front().measurement.step_time_s,
              1e-3 * best.visits.front().measurement.service->e2e.mean, 1e-12);
}

TEST_F(ServingWorkloadTest, WhatMissesARequirementStandsBelow) {
  options_.race.prove_count = 0;
  problem_.requirements = ParseRequirements("tpot.mean<1ms");
  const SearchResult result = Search();
  ASSERT_EQ(result.serving->relaxations.size(), 1u);
  EXPECT_TRUE(result.serving->relaxations[0].starts_with("tpot.mean<"));
  EXPECT_FALSE(ReportJson(result)["recommended"]["service"]["meets_requirements"]);
}

TEST_F(ServingWorkloadTest, SaysWhatQualityHoldsBack) {
  options_.race.prove_count = 0;
  problem_.requirements = ParseRequirements("perplexity<1.005x");
  problem_.quality = {.of = "",
                      .rises = {{{WeightFormat::kBf16, DType::kBf16}, 1.0002},
                                {{WeightFormat::kF8, DType::kBf16}, 1.01}}};
  const SearchResult result = Search();
  EXPECT_EQ(result.recommended_candidate().serving->weights, WeightFormat::kBf16);
  EXPECT_EQ(result.serving->perplexity_rise, 1.0002);
  EXPECT_NE(result.serving->binds.find("leaves out weights=fp8,cache=bf16 (1.01x)"),
            std::string::npos)
      << result.serving->binds;
}

TEST_F(ServingWorkloadTest, SaysWhatAMillionTokensCost) {
  options_.race.prove_count = 0;
  options_.race.objective = Objective::kCost;
  problem_.cluster.price_per_gpu_hour = 3;
  const SearchResult result = Search();
  const CandidateRecord& best = result.recommended_candidate();
  const double rate = best.prediction()->tokens_per_s;
  const auto gpus = static_cast<double>(best.run.layout.world_size());
  EXPECT_NEAR(*result.serving->price_per_million, 3 * gpus / (rate * 3600 / 1e6), 1e-9);
}

// A search that has had enough says how much better what it left could be.
TEST_F(ServingWorkloadTest, ABudgetLeavesAGap) {
  Walkers walkers(1);
  walkers.enough = [] { return true; };
  const ServingSearchResult stopped = SearchServing(problem_, walkers, 16);
  EXPECT_GT(stopped.unexplored, 0);
  EXPECT_GE(stopped.gap, 0);
  const ServingSearchResult whole = SearchServing(problem_, 1, 16);
  EXPECT_GE(whole.best().rank.score, stopped.best().rank.score * (1 - stopped.gap) * (1 - 1e-9));
}

TEST_F(ServingWorkloadTest, ForbidsAndNamesNumbersOfGpus) {
  options_.race.prove_count = 0;
  problem_.narrowings.push_back({.key = "weights", .forbidden = true, .values = {"fp8"}});
  problem_.gpus = {1};
  const SearchResult result = Search();
  for (const CandidateRecord& each : result.candidates) {
    EXPECT_EQ(each.serving->weights, WeightFormat::kBf16) << each.key;
    EXPECT_EQ(each.run.layout.world_size(), 1) << each.key;
  }
}

TEST(ServingProblem, IsReadBackFromItsJson) {
  std::mt19937_64 random(7);
  for (int i = 0; i < 60; ++i) {
    ServingProblem problem = ProblemOn("2xh100", "llama3-8b", RandomLoad(random));
    problem.workload = "drawn";
    if (random() % 2 == 0) Speculate(random, problem);
    if (random() % 2 == 0) problem.requirements = ParseRequirements("ttft.p99<300ms,throughput>4");
    if (random() % 2 == 0) problem.gpus = {1, 2};
    if (random() % 2 == 0) problem.max_ranks = 2;
    if (random() % 2 == 0)
      problem.quality = {.of = "a text", .rises = {{{WeightFormat::kF8, DType::kBf16}, 1.1}}};
    const nlohmann::json json = ToJson(problem);
    const ServingProblem read = ServingProblemFromJson(json, "study: $");
    EXPECT_TRUE(read == problem) << json.dump();
    EXPECT_EQ(ToJson(read), json);
  }
  nlohmann::json json = ToJson(ProblemOn(
      "2xh100", "llama3-8b", {.requests = DrawRequests("30/2", 3, 0, 1), .concurrency = 1}));
  json["weights"][0] = "fp9";
  EXPECT_THROW(ServingProblemFromJson(json, "study: $"), InputError);
}

}  // namespace
}  // namespace trimtab
