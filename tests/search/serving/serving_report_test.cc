#include "search/serving/serving_report.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "engine/families/load_config.h"
#include "tests/search/schema_check.h"
#include "tests/search/serving/serving_problems.h"

namespace trimtab {
namespace {

std::string Breach(const nlohmann::json& report) {
  std::ifstream file("search/serving/serving_report.schema.json");
  return SchemaBreach(nlohmann::json::parse(file), report);
}

ServingProblem Problem() {
  return ProblemOn("2xh100", "llama3-8b",
                   {.requests = DrawRequests("300/20", 20, 0, 1), .concurrency = 8});
}

TEST(ServingReport, FollowsItsSchema) {
  ServingProblem problem = Problem();
  EXPECT_EQ(Breach(ServingReportJson(problem, SearchServing(problem, 1), nullptr)), "");

  problem.cluster.price_per_gpu_hour = 2;
  problem.lookup_acceptance = 0.5;
  problem.draft = LoadModelConfig("llama3.2-1b");
  problem.draft_acceptance = 0.7;
  problem.allowed["prefill"] = {"0", "1"};
  problem.requirements = ParseRequirements("ttft.p99<1ms,perplexity<1.5x");
  problem.quality.of = "a text";
  for (const WeightFormat weights : problem.weights) {
    problem.quality.rises[{weights, DType::kBf16}] = 1.1;
  }
  const nlohmann::json report = ServingReportJson(problem, SearchServing(problem, 1), nullptr);
  EXPECT_EQ(Breach(report), "");
  EXPECT_FALSE(report["recommended"]["meets_requirements"]);
  EXPECT_TRUE(report["recommended"].contains("perplexity_rise"));
  EXPECT_TRUE(report["recommended"].contains("price_per_million_tokens"));
}

TEST(ServingReport, FollowsItsSchemaWithWhatWasMeasured) {
  const ServingProblem problem = Problem();
  const ServingSearchResult result = SearchServing(problem, 1);
  ServingProof proof;
  proof.proved.resize(2);
  proof.proved[0].failure = "out of memory";
  proof.proved[1].place = 1;
  proof.proved[1].visits = 2;
  proof.proved[1].report = result.ranking[1].prediction.report;
  proof.winner = 1;
  const nlohmann::json report = ServingReportJson(problem, result, &proof);
  EXPECT_EQ(Breach(report), "");
  EXPECT_TRUE(report["recommended"].contains("measured"));
  EXPECT_EQ(report["ranking"][0]["failure"], "out of memory");
}

TEST(ServingReport, TheSchemaRefusesWhatItDoesNotKnow) {
  const ServingProblem problem = Problem();
  nlohmann::json report = ServingReportJson(problem, SearchServing(problem, 1), nullptr);
  report["ranking"][0]["predicted"]["colour"] = "red";
  EXPECT_EQ(Breach(report), "$.ranking[0].predicted.colour: not in the schema");
}

}  // namespace
}  // namespace trimtab
