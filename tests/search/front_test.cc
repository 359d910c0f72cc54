// Numbers of GPUs: which are asked for, which are tried, and time against price over them.
#include "search/front.h"

#include <gtest/gtest.h>

#include <set>

#include "cost_model/goodput.h"
#include "engine/base/error.h"
#include "engine/families/load_config.h"
#include "search/space/gpu_counts.h"
#include "search/space/space.h"
#include "tests/search/search_fakes.h"

namespace trimtab {
namespace {

using Counts = std::vector<int64_t>;

TEST(GpuCounts, AreARangeOrAList) {
  const Cluster cluster = LoadCluster("16x8xh100");
  EXPECT_EQ(ParseGpuCounts("64", cluster), Counts({64}));
  EXPECT_EQ(ParseGpuCounts("8..64", cluster), Counts({8, 16, 32, 64}));
  EXPECT_EQ(ParseGpuCounts("24..128", cluster), Counts({24, 48, 96, 128}));
  EXPECT_EQ(ParseGpuCounts("1..8", cluster), Counts({1, 2, 4, 8}));
  EXPECT_EQ(ParseGpuCounts("96,64,96", cluster), Counts({64, 96}));
}

TEST(GpuCounts, ThatMakeNoSenseAreRefused) {
  const Cluster cluster = LoadCluster("16x8xh100");
  for (const char* text :
       {"", "x", "0", "-8", "8..", "..8", "64..8", "8,,16", "8,", "256", "12", "8..20", "1e2"}) {
    EXPECT_THROW(ParseGpuCounts(text, cluster), UsageError) << text;
  }
  EXPECT_THROW(ParseGpuCounts("2", LoadCluster("local")), UsageError);
}

TEST(GlobalBatches, AreOneOrAList) {
  EXPECT_EQ(ParseGlobalBatches({"512"}), Counts({512}));
  EXPECT_EQ(ParseGlobalBatches({"1024", "512", "1024"}), Counts({512, 1024}));
  for (const char* word : {"", "x", "0", "-8", "8x", "1e3", "4294967296"}) {
    EXPECT_THROW(ParseGlobalBatches({"8", word}), UsageError) << word;
  }
}

TEST(WithGpus, TakesWholeNodesOrAPartOfOne) {
  const Cluster cluster = LoadCluster("4x8xh100");
  EXPECT_EQ(WithGpus(cluster, 64).nodes, 8);
  EXPECT_EQ(WithGpus(cluster, 64).max_ranks, 64);
  EXPECT_EQ(WithGpus(cluster, 4).ranks_per_node, 4);
  EXPECT_EQ(WithGpus(cluster, 4).nodes, 1);
  EXPECT_THROW(WithGpus(cluster, 12), UsageError);
  EXPECT_THROW(WithGpus(cluster, 0), UsageError);
}

TEST(GpuCounts, AreADimensionOfTheSpace) {
  Problem problem = TinyProblem();
  problem.cluster = LoadCluster("8xh100");
  problem.precisions = {Precision::kBf16};
  problem.gpus = {2, 4};
  std::set<int64_t> sizes;
  for (const RunConfig& run : LegalCandidates(problem)) sizes.insert(run.layout.world_size());
  EXPECT_EQ(sizes, (std::set<int64_t>{2, 4}));
}

/// A ranking of predicted layouts: of so many GPUs, at so many tokens per second.
struct Fleet {
  explicit Fleet(const std::vector<std::pair<int64_t, double>>& rows) {
    for (const auto& [gpus, tokens_per_s] : rows) {
      RankingRow& row = ranking.emplace_back();
      row.candidate = candidates.size();
      row.figure.tokens_per_s = tokens_per_s;
      CandidateRecord& candidate = candidates.emplace_back();
      candidate.run.model = LoadModelConfig("gpt2-tiny");
      candidate.run.device = DeviceKind::kCuda;
      candidate.run.layout.dp = gpus;
    }
  }
  std::vector<RankingRow> ranking;
  std::vector<CandidateRecord> candidates;
};

/// GPUs that hardly ever fail, at this price an hour.
Cluster Steady(double price) {
  Cluster cluster = LoadCluster("16x8xh100");
  cluster.reliability.gpu_mtbf_hours = 1e15;
  cluster.price_per_gpu_hour = price;
  return cluster;
}

TEST(TimeAgainstPrice, TakesTheFastestOfEachNumberOfGpus) {
  const Fleet fleet({{16, 1500}, {8, 1000}, {8, 900}, {16, 1600}});
  const std::vector<FrontRow> front =
      TimeAgainstPrice(fleet.ranking, fleet.candidates, 3.6e6 * 1000, Steady(2));
  ASSERT_EQ(front.size(), 2u);
  EXPECT_EQ(front[0].gpus, 8);
  EXPECT_EQ(front[0].row, 1u);
  EXPECT_NEAR(front[0].hours, 1000, 1e-3);
  EXPECT_NEAR(front[0].gpu_hours, 8000, 1e-2);
  EXPECT_NEAR(front[0].price.value(), 16000, 1e-2);
  const double kilowatts = PowerPerGpu(Steady(2)) / 1000;
  EXPECT_GT(kilowatts, 0.3);
  EXPECT_NEAR(front[0].energy_kwh.value(), 8000 * kilowatts, 1e-2);
  EXPECT_EQ(front[1].row, 3u);
  EXPECT_NEAR(front[1].hours, 625, 1e-3);
  EXPECT_NEAR(front[1].gpu_hours, 10000, 1e-2);
  EXPECT_TRUE(front[0].on_front);
  EXPECT_TRUE(front[1].on_front);
}

TEST(TimeAgainstPrice, GoesByWhatWasMeasured) {
  Fleet fleet({{8, 900}, {8, 950}, {8, 1000}, {16, 1500}});
  fleet.ranking[0].measured_tokens_per_s = 900;
  fleet.ranking[1].measured_tokens_per_s = 950;
  const std::vector<FrontRow> front =
      TimeAgainstPrice(fleet.ranking, fleet.candidates, 3.6e6 * 950, Steady(2));
  ASSERT_EQ(front.size(), 2u);
  EXPECT_EQ(front[0].row, 1u) << "not the one that is only predicted to be faster";
  EXPECT_NEAR(front[0].hours, 1000, 1e-3);
  EXPECT_EQ(front[1].row, 3u);
}

TEST(TrainingWith, GoesByTheRowsFigure) {
  const Fleet fleet({{8, 1000}, {16, 500}});
  const FrontRow training =
      TrainingWith(fleet.ranking, 1, fleet.candidates, 3.6e6 * 500, Steady(2));
  EXPECT_EQ(training.gpus, 16);
  EXPECT_NEAR(training.hours, 1000, 1e-3);
  EXPECT_NEAR(training.price.value(), 32000, 1e-1);
}

TEST(TimeAgainstPrice, CountsWhatFailuresCost) {
  const Fleet fleet({{8, 1000}});
  Cluster cluster = Steady(2);
  cluster.reliability.gpu_mtbf_hours = 1000;
  const FrontRow row = TimeAgainstPrice(fleet.ranking, fleet.candidates, 3.6e9, cluster).front();
  const TrainingCost cost =
      CostOfTraining({.ranks = 8,
                      .tokens_per_s = 1000,
                      .checkpoint_bytes = CheckpointBytes(fleet.candidates.front().run.model)},
                     cluster, 3.6e9);
  EXPECT_GT(row.hours, 1001);
  EXPECT_DOUBLE_EQ(row.price.value(), cost.price);
  EXPECT_DOUBLE_EQ(row.energy_kwh.value(), cost.kilowatt_hours());
}

TEST(TimeAgainstPrice, MoreGpusThatAreNoFasterAreNotOnTheFront) {
  const Fleet fleet({{8, 1000}, {16, 990}, {32, 4100}});
  const std::vector<FrontRow> front =
      TimeAgainstPrice(fleet.ranking, fleet.candidates, 1e9, Steady(0));
  ASSERT_EQ(front.size(), 3u);
  EXPECT_FALSE(front[0].on_front)
      << "32 GPUs are more than four times as fast, and so take fewer hours of them";
  EXPECT_FALSE(front[1].on_front);
  EXPECT_TRUE(front[2].on_front);
  EXPECT_FALSE(front[2].price.has_value()) << "no price is known";
}

TEST(TimeAgainstPrice, LeavesOutWhatFailedAndCpus) {
  Fleet fleet({{8, 1000}, {16, 1500}});
  fleet.ranking[1].standing = Standing::kFailed;
  EXPECT_EQ(TimeAgainstPrice(fleet.ranking, fleet.candidates, 1e9, Steady(0)).size(), 1u);
  for (CandidateRecord& each : fleet.candidates) each.run.device = DeviceKind::kCpu;
  EXPECT_TRUE(TimeAgainstPrice(fleet.ranking, fleet.candidates, 1e9, Steady(0)).empty());
}

}  // namespace
}  // namespace trimtab
