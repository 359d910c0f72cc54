#include "engine/layers/moe/expert_counts.h"

#include <gtest/gtest.h>

namespace trimtab {
namespace {

std::vector<int64_t> Of(const ExpertCounts& rows, int rank) {
  return {rows.of(rank).begin(), rows.of(rank).end()};
}

TEST(ExpertCounts, KeepsTheRowsOfEachRank) {
  const ExpertCounts rows(3, {1, 2, 3, 4, 5, 6});
  EXPECT_EQ(rows.experts(), 3);
  EXPECT_EQ(Of(rows, 0), (std::vector<int64_t>{1, 2, 3}));
  EXPECT_EQ(Of(rows, 1), (std::vector<int64_t>{4, 5, 6}));
  EXPECT_EQ(rows.Count(1, {1, 2}), 11);
  EXPECT_EQ(rows.SumOverRanks({0, 3}), (std::vector<int64_t>{5, 7, 9}));
  EXPECT_EQ(rows.SumOverRanks({2, 1}), (std::vector<int64_t>{9}));
}

TEST(ExpertCounts, CountsRanksThatAreAlike) {
  ExpertCounts rows(2);
  const size_t first = rows.Add({1, 10});
  const size_t second = rows.Add({2, 20});
  for (const size_t kind : {second, first, second}) rows.AddLike(kind);
  const ExpertCounts each(2, {1, 10, 2, 20, 2, 20, 1, 10, 2, 20});
  for (int rank = 0; rank < 5; ++rank) {
    EXPECT_EQ(Of(rows, rank), Of(each, rank));
    EXPECT_EQ(rows.Count(rank, {0, 2}), each.Count(rank, {0, 2}));
  }
  EXPECT_EQ(rows.SumOverRanks({0, 2}), each.SumOverRanks({0, 2}));
}

}  // namespace
}  // namespace trimtab
