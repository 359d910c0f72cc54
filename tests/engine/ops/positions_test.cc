#include "engine/ops/positions.h"

#include <gtest/gtest.h>

#include <set>

namespace trimtab {
namespace {

TEST(Positions, OfAWholeSequenceAreItsTokens) {
  const Positions positions = 7;
  EXPECT_EQ(positions.sequence, 7);
  for (int64_t token = 0; token < 7; ++token) EXPECT_EQ(positions.of(token), token);
  EXPECT_EQ(positions.end(), 7);
  EXPECT_EQ(Positions::ZigZag(7, 1, 0).end(), 7) << "one rank has all of an odd length";
}

TEST(Positions, OfRanksPairTheFirstRunsWithTheLast) {
  const Positions positions = Positions::ZigZag(24, 3, 1);
  std::vector<int64_t> held;
  for (int64_t token = 0; token < positions.sequence; ++token) held.push_back(positions.of(token));
  EXPECT_EQ(held, (std::vector<int64_t>{4, 5, 6, 7, 16, 17, 18, 19}));
  EXPECT_EQ(positions.end(), 20);
}

TEST(Positions, OfAllRanksCoverASequenceOnceAndSeeAsMuchEach) {
  for (const int64_t ranks : {2, 3, 4, 8}) {
    const int64_t length = 2 * ranks * 5;
    std::set<int64_t> all;
    for (int64_t rank = 0; rank < ranks; ++rank) {
      const Positions positions = Positions::ZigZag(length, ranks, rank);
      int64_t visible = 0;
      for (int64_t token = 0; token < positions.sequence; ++token) {
        EXPECT_TRUE(all.insert(positions.of(token)).second);
        visible += positions.of(token) + 1;
      }
      EXPECT_EQ(visible, length * (length + 1) / 2 / ranks);
    }
    EXPECT_EQ(static_cast<int64_t>(all.size()), length);
    EXPECT_EQ(*all.rbegin(), length - 1);
  }
}

TEST(Positions, DoNotTakeLengthsThatDoNotDivide) {
  EXPECT_DEATH(Positions::ZigZag(10, 2, 0), "the share of rank 0 of 2 in 10 tokens");
}

}  // namespace
}  // namespace trimtab
