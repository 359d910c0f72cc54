// Random problems of serving on this machine: whatever is recommended starts, admits what was
// planned and keeps what it promised, or the report says that nothing does.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>

#include "tests/engine/data/data_test_util.h"
#include "tests/tools/processes.h"
#include "tests/tools/shell.h"

namespace trimtab {
namespace {

using nlohmann::json;

#ifdef TRIMTAB_EXHAUSTIVE
constexpr int kProblems = 20;
#else
constexpr int kProblems = 3;
#endif

std::string RandomProblem(std::mt19937& random) {
  const auto pick = [&random](std::initializer_list<const char*> values) {
    return std::string(values.begin()[random() % values.size()]);
  };
  std::string problem = " --model " + pick({"gpt2-tiny", "llama-tiny"});
  problem += " --workload " + pick({"16/8", "uniform:4-80/uniform:2-30", "lognormal:20:0.4/10"});
  problem += " --requests " + pick({"6", "15"});
  problem += pick({" --concurrency 1", " --concurrency 3", " --concurrency 9", " --rate 40"});
  problem += pick({"", " --weights fp32,int8", " --cache int8"});
  problem += " --memory-per-rank " + pick({"4MiB", "8MiB", "64MiB", "1GiB"});
  problem += " --max-ranks " + pick({"1", "2"});
  const std::string required =
      pick({"", "ttft.p99<100s", "tpot.mean<0.001ms", "throughput>1,e2e.p50<60s"});
  if (!required.empty()) problem += " --require '" + required + "'";
  return problem + " --objective " + pick({"throughput", "latency", "price", "gpus"});
}

class ServingProblemsTest : public testing::TestWithParam<int> {};

TEST_P(ServingProblemsTest, WhatIsRecommendedKeepsItsPromise) {
  std::mt19937 random(static_cast<uint32_t>(GetParam()));
  const std::string problem = RandomProblem(random);
  const std::string folder = ScratchFolder();
  const Outcome searched = Shell(fmt::format(
      "XDG_CACHE_HOME={0} tools/trimtab search -q --for serving --cluster local --fix pp=1 "
      "--allow tokens=64,256 --prove 2 --rounds 1 --study {0}/study.db --report {0}{1}",
      folder, problem));
  // 5: a tie between the two.
  ASSERT_TRUE(searched.status == 0 || searched.status == 4 || searched.status == 5)
      << problem << "\n"
      << searched.output;
  if (!std::filesystem::exists(folder + "/report.json")) {
    EXPECT_EQ(searched.status, 4);
    EXPECT_NE(searched.output.find("can serve the load within"), std::string::npos)
        << problem << "\n"
        << searched.output;
    return;
  }
  const json report = json::parse(ReadWholeFile(folder + "/report.json"));
  const json& best = report["recommended"];
  EXPECT_EQ(best["state"], "measured") << problem;
  EXPECT_EQ(best["measured"]["service"]["failed"], 0) << problem;
  EXPECT_EQ(best["service"]["meets_requirements"], searched.status != 4) << problem;
  EXPECT_EQ(best["relaxations"].empty(), searched.status != 4) << problem;
  EXPECT_LE(best["predicted"]["peak_mem_bytes"], best["serving"]["memory_per_rank_bytes"])
      << problem;

  // As many of the longest requests at once as it was planned for.
  const int64_t longest = best["serving"]["sequence_length"];
  const int64_t sequences = best["serving"]["sequences"];
  const Outcome crowded = Shell(fmt::format(
      "tools/trimtab bench -q --json --random-weights --config {}/report.json --vocab 100 "
      "--workload {}/2 --requests {} --concurrency {}",
      folder, longest - 2, 2 * sequences, sequences));
  ASSERT_EQ(crowded.status, 0) << problem << "\n" << crowded.output;
  EXPECT_EQ(json::parse(crowded.output)["failed"], 0) << problem;
}

INSTANTIATE_TEST_SUITE_P(Seeds, ServingProblemsTest, testing::Range(1, 1 + kProblems));

}  // namespace
}  // namespace trimtab
