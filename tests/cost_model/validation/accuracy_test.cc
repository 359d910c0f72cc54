#include "cost_model/validation/accuracy.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace trimtab {
namespace {

TEST(Accuracy, SummarizesAbsoluteErrors) {
  const ErrorSummary summary = SummarizeErrors({-0.3, 0.1, 0.2, -0.1, 0.5});
  EXPECT_EQ(summary.rows, 5);
  EXPECT_DOUBLE_EQ(summary.median, 0.2);
  EXPECT_DOUBLE_EQ(summary.p90, 0.3 + 0.6 * 0.2);
  EXPECT_DOUBLE_EQ(summary.mean, 0.24);
  EXPECT_DOUBLE_EQ(summary.max, 0.5);
  EXPECT_EQ(ToJson(summary)["median"], summary.median);
  EXPECT_EQ(SummarizeErrors({}).rows, 0);
  EXPECT_TRUE(ToJson(SummarizeErrors({}))["median"].is_null()) << "of nothing, not 0";
}

TEST(Accuracy, RanksWithinGroupsOnly) {
  // Three pairs of group a, one of them the wrong way round; b has no pair with a.
  const std::vector<RankedRow> rows = {
      {"a", 1.0, 1.0}, {"a", 3.0, 2.0}, {"a", 2.0, 3.0}, {"b", 9.0, 0.1}};
  const RankSummary summary = SummarizeRanking(rows);
  EXPECT_EQ(summary.pairs, 3);
  EXPECT_DOUBLE_EQ(summary.kendall, 1.0 / 3);
  EXPECT_EQ(summary.groups, 1);
  EXPECT_DOUBLE_EQ(summary.spearman, 0.5);
  EXPECT_DOUBLE_EQ(summary.top1_regret, 0) << "the best is predicted best";
}

TEST(Accuracy, LeavesOutPairsThatAreTooCloseToTell) {
  const std::vector<RankedRow> rows = {{"a", 1.0, 1.02}, {"a", 2.0, 1.0}, {"a", 3.0, 1.5}};
  const RankSummary summary = SummarizeRanking(rows);
  EXPECT_EQ(summary.distinct_pairs, 2);
  EXPECT_DOUBLE_EQ(summary.kendall_distinct, 1);
  EXPECT_DOUBLE_EQ(summary.kendall, 1.0 / 3);
  EXPECT_NEAR(summary.top1_regret, 1 - 1.0 / 1.02, 1e-12);
}

TEST(Accuracy, QuantilesLieBetweenNeighbours) {
  EXPECT_DOUBLE_EQ(Quantile({3, 1, 2}, 0.5), 2);
  EXPECT_DOUBLE_EQ(Quantile({1, 2}, 0.25), 1.25);
  EXPECT_DOUBLE_EQ(Quantile({}, 0.5), 0);
}

}  // namespace
}  // namespace trimtab
