#include "engine/parallel/gradient_reducer.h"

#include <gtest/gtest.h>

namespace trimtab {
namespace {

TEST(PlanBucketsTest, CutsFromTheEndWhenEnoughHasGathered) {
  const std::vector<Bucket> expected = {{60, 100}, {30, 60}, {0, 30}};
  EXPECT_EQ(PlanBuckets({10, 30, 60, 80}, {0, 100}, 30), expected);
}

TEST(PlanBucketsTest, SmallModelsTakeOneBucket) {
  const std::vector<Bucket> expected = {{0, 100}};
  EXPECT_EQ(PlanBuckets({10, 30, 60, 80}, {0, 100}, 1000), expected);
  EXPECT_EQ(PlanBuckets({}, {0, 100}, 1), expected);
}

TEST(PlanBucketsTest, NothingToReduceTakesNoBucket) {
  EXPECT_TRUE(PlanBuckets({0}, {0, 0}, 1).empty());
}

TEST(PlanBucketsTest, StaysWithinItsRange) {
  const std::vector<Bucket> expected = {{60, 90}, {30, 60}, {20, 30}};
  EXPECT_EQ(PlanBuckets({0, 10, 20, 30, 60, 80}, {20, 90}, 25), expected);
}

TEST(PlanBucketsTest, BucketsTileTheBufferWithoutOverlap) {
  for (int64_t min_numel = 1; min_numel < 120; ++min_numel) {
    int64_t end = 100;
    for (const Bucket& bucket : PlanBuckets({0, 7, 19, 50, 51, 99}, {0, 100}, min_numel)) {
      EXPECT_EQ(bucket.end, end);
      EXPECT_LT(bucket.begin, bucket.end);
      end = bucket.begin;
    }
    EXPECT_EQ(end, 0);
  }
}

}  // namespace
}  // namespace trimtab
