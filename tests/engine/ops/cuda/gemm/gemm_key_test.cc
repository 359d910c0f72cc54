#include "engine/ops/cuda/gemm/gemm_key.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

#include "engine/base/error.h"
#include "engine/ops/cuda/gemm/gemm_plan_cache.h"

namespace trimtab {
namespace {

TEST(RowBucket, FourToEachDoubling) {
  for (const auto& [rows, bucket] : {std::pair<int64_t, int64_t>{1, 16},
                                     {16, 16},
                                     {17, 20},
                                     {20, 20},
                                     {21, 24},
                                     {32, 32},
                                     {33, 40},
                                     {64, 64},
                                     {65, 80},
                                     {100, 112},
                                     {1000, 1024},
                                     {1025, 1280},
                                     {4097, 5120}}) {
    EXPECT_EQ(RowBucket(rows), bucket) << rows;
  }
  std::set<int64_t> buckets;
  for (int64_t rows = 1; rows <= 65536; ++rows) {
    const int64_t bucket = RowBucket(rows);
    EXPECT_GE(bucket, rows);
    EXPECT_LE(bucket, std::max<int64_t>(16, rows + rows / 4));
    EXPECT_EQ(RowBucket(bucket), bucket);
    buckets.insert(bucket);
  }
  EXPECT_EQ(buckets.size(), 1u + 4 * 12);
}

TEST(PlanKey, RoundsTheSizeThatVariesAndNoOther) {
  GemmKey key = {.m = 33, .n = 100, .k = 50};
  EXPECT_EQ(PlanKey(key).m, 33);
  key.varying = VaryingSize::kM;
  EXPECT_EQ(PlanKey(key).m, 40);
  EXPECT_EQ(PlanKey(key).n, 100);
  EXPECT_EQ(PlanKey(key).k, 50);
  key.varying = VaryingSize::kK;
  EXPECT_EQ(PlanKey(key).m, 33);
  EXPECT_EQ(PlanKey(key).k, 56);
  GemmKey other = key;
  other.k = 49;
  EXPECT_TRUE(other < key);
  EXPECT_FALSE(PlanKey(other) < PlanKey(key) || PlanKey(key) < PlanKey(other));
  other.varying = VaryingSize::kNone;
  EXPECT_TRUE(PlanKey(other) < PlanKey(key) || PlanKey(key) < PlanKey(other));
}

TEST(PlanCache, KeepsWhatWasUsedLast) {
  PlanCache<int, int> cache(3);
  EXPECT_EQ(cache.Find(1), nullptr);
  for (const int key : {1, 2, 3}) EXPECT_EQ(cache.Add(key, 10 * key), 10 * key);
  EXPECT_EQ(*cache.Find(1), 10);
  cache.Add(4, 40);
  EXPECT_EQ(cache.size(), 3u);
  EXPECT_EQ(cache.Find(2), nullptr) << "not used for longest";
  for (const int key : {1, 3, 4}) EXPECT_EQ(*cache.Find(key), 10 * key);
}

TEST(PlanCache, APlanStaysWhereItIs) {
  PlanCache<int, int> cache(100);
  int* const first = &cache.Add(0, 7);
  for (int key = 1; key < 100; ++key) cache.Add(key, key);
  EXPECT_EQ(cache.Find(0), first);
}

TEST(BucketAlgorithms, EachSizeIsCheckedOnceAndTheChosenOneStays) {
  // The chosen algorithm, 8, runs multiples of 4; another one is as large as its size.
  BucketAlgorithms<int64_t> of_sizes(40, 8);
  std::vector<int64_t> checked;
  std::vector<int64_t> proposed;
  const auto find = [&](int64_t size) {
    return of_sizes.For(
        size,
        [&](int64_t chosen) {
          EXPECT_EQ(chosen, 8);
          checked.push_back(size);
          return size % 4 == 0;
        },
        [&] {
          proposed.push_back(size);
          return size;
        });
  };
  for (int times = 0; times < 3; ++times) {
    EXPECT_EQ(find(40), 8);
    EXPECT_EQ(find(36), 8);
    EXPECT_EQ(find(37), 37);
    EXPECT_EQ(find(38), 38);
  }
  EXPECT_EQ(checked, (std::vector<int64_t>{36, 37, 38}));
  EXPECT_EQ(proposed, (std::vector<int64_t>{37, 38}));
  const auto none = []() -> int64_t { throw EnvironmentError("no algorithm"); };
  const auto never = [](int64_t) { return false; };
  EXPECT_THROW(of_sizes.For(39, never, none), EnvironmentError);
  EXPECT_EQ(find(39), 39) << "asked again after a failure";
}

}  // namespace
}  // namespace trimtab
