// A dimension of serving is one row: what is changed of it alone is printed, read back, stored and
// fixed, and a search predicts of it what is predicted of it alone.
#include "search/serving/serving_dimensions.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "engine/base/error.h"
#include "engine/infer/serving_json.h"
#include "search/serving/serving_search.h"
#include "tests/search/serving/serving_problems.h"

namespace trimtab {
namespace {

constexpr char kBase[] =
    "tp=2,pp=1,ep=1,weights=bf16,cache=bf16,prefix=on,replicas=2,sequences=2,tokens=1024";

/// Returns a problem in which every dimension has several values.
ServingProblem ProblemOfAllDimensions() {
  ServiceLoad load = {.requests = DrawRequests("uniform:20-300/uniform:2-20", 12, 0, 5),
                      .concurrency = 6};
  ShareBeginnings(200, load.requests);
  ServingProblem problem = ProblemOn("8xh100", "mixtral-8x7b", std::move(load));
  problem.caches = {DType::kBf16, DType::kF8E4M3};
  problem.lookup_acceptance = 0.6;
  problem.draft = LoadModelConfig("llama2-7b");
  problem.draft_acceptance = 0.8;
  Allow(problem, "prefix", {"on", "off"});
  Allow(problem, "prefill", {"0", "1"});
  return problem;
}

/// Returns candidates that differ from the base in the value of one dimension, with that.
std::vector<std::pair<const ServingDimension*, ServingCandidate>> Changes(
    const ServingProblem& problem, const ServingCandidate& base) {
  std::vector<std::pair<const ServingDimension*, ServingCandidate>> changes;
  for (const ServingDimension& dimension : ServingDimensions()) {
    const size_t before = changes.size();
    for (const int64_t value : dimension.values(problem, base)) {
      if (value == dimension.value(base)) continue;
      ServingCandidate changed = base;
      dimension.bind(changed, value);
      EXPECT_EQ(dimension.value(changed), value) << dimension.name;
      changes.emplace_back(&dimension, std::move(changed));
    }
    EXPECT_GT(changes.size(), before) << dimension.name << " has one value";
  }
  return changes;
}

TEST(ServingDimensions, EachIsPrintedReadAndStored) {
  const ServingProblem problem = ProblemOfAllDimensions();
  const ServingCandidate base = ParseServingCandidate(problem, kBase);
  EXPECT_EQ(base.Key(), kBase);
  std::set<std::string> keys = {base.Key()};
  std::set<std::string> read;
  for (const auto& [dimension, changed] : Changes(problem, base)) {
    const std::string key = changed.Key();
    EXPECT_TRUE(keys.insert(key).second) << key << " is that of another";
    const nlohmann::json json = ToJson(changed.config);
    const ServingCandidate stored = {ServingConfigFromJson(json, "config")};
    EXPECT_EQ(stored.Key(), key);
    EXPECT_EQ(ToJson(stored.config), json);
    try {
      EXPECT_EQ(ParseServingCandidate(problem, key).Key(), key);
      read.insert(dimension->name);
    } catch (const InfeasibleError&) {  // not every change is legal
    }
  }
  for (const ServingDimension& each : ServingDimensions()) EXPECT_TRUE(read.contains(each.name));
}

TEST(ServingDimensions, FixedOnesLeaveTheCandidateThatIsPredictedAlone) {
  ServingProblem problem = ProblemOfAllDimensions();
  const ServingCandidate base = ParseServingCandidate(problem, kBase);
  std::set<std::string> predicted;
  for (const auto& [changed_dimension, changed] : Changes(problem, base)) {
    SCOPED_TRACE(changed.Key());
    std::vector<std::string> words;
    for (const ServingDimension& each : ServingDimensions()) {
      words.push_back(std::string(each.name) + "=" + each.Text(each.value(base)));
      if (&each == changed_dimension) words.push_back(each.Text(each.value(changed)));
    }
    problem.narrowings = ParseNarrowings(words, "--allow", /*forbidden=*/false, ServingKeys());
    const ServingSearchResult result = SearchServing(problem, /*walkers=*/1, /*certain=*/2);
    EXPECT_EQ(result.size, changed.gpus() <= problem.ranks() ? 2 : 1);
    for (const ServingEvaluation& each : result.ranking) {
      ServingCandidate alone = each.candidate;
      alone.config.cache_blocks = 0;
      const ServingEvaluation fresh = EvaluateServing(problem, alone);
      EXPECT_EQ(each.candidate.Key(), fresh.candidate.Key());
      EXPECT_TRUE(each.rank == fresh.rank);
      EXPECT_EQ(each.prediction.spent.seconds(), fresh.prediction.spent.seconds());
      EXPECT_EQ(each.prediction.draft_s, fresh.prediction.draft_s);
      EXPECT_EQ(each.prediction.copy_s, fresh.prediction.copy_s);
      EXPECT_EQ(each.prediction.most_blocks, fresh.prediction.most_blocks);
      EXPECT_EQ(each.memory.total(), fresh.memory.total());
      if (each.candidate.Key() == changed.Key()) predicted.insert(changed_dimension->name);
    }
  }
  for (const ServingDimension& each : ServingDimensions()) {
    EXPECT_TRUE(predicted.contains(each.name)) << each.name;
  }
}

}  // namespace
}  // namespace trimtab
