#include "engine/parallel/parameter_shards.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <optional>

namespace trimtab {
namespace {

/// Units of these sizes, of which `shared` are used by others.
std::vector<ParameterUnit> Units(const std::vector<int64_t>& sizes,
                                 const std::vector<size_t>& shared = {}) {
  std::vector<ParameterUnit> units(sizes.size());
  int64_t begin = 0;
  for (size_t i = 0; i < sizes.size(); ++i) {
    units[i].range = {begin, begin + sizes[i]};
    begin += sizes[i];
  }
  for (const size_t unit : shared) units[unit].users = 1;
  return units;
}

TEST(PlanBucketsTest, CollectsFromTheEnd) {
  const std::vector<Bucket> expected = {
      {0, 1, {0, 10}, 0}, {1, 3, {10, 60}, 5}, {3, 5, {60, 100}, 30}};
  EXPECT_EQ(PlanBuckets(Units({10, 20, 30, 20, 20}), 40, {.dense = 2}), expected);
}

TEST(PlanBucketsTest, SmallModelsTakeOneBucket) {
  const std::vector<Bucket> expected = {{0, 3, {0, 60}, 0}};
  EXPECT_EQ(PlanBuckets(Units({10, 20, 30}), 1000, {}), expected);
}

TEST(PlanBucketsTest, WhatOthersUseIsAlone) {
  const std::vector<Bucket> expected = {{0, 1, {0, 10}, 0}, {1, 3, {10, 60}, 10}};
  EXPECT_EQ(PlanBuckets(Units({10, 20, 30}, {0}), 1000, {}), expected);
  const std::vector<Bucket> in_the_middle = {
      {0, 1, {0, 10}, 0}, {1, 2, {10, 30}, 10}, {2, 3, {30, 60}, 30}};
  EXPECT_EQ(PlanBuckets(Units({10, 20, 30}, {1}), 1000, {}), in_the_middle);
}

TEST(PlanBucketsTest, ExpertsAreCutForThemselves) {
  std::vector<ParameterUnit> units = Units({12, 24, 36}, {1});
  units[1].grid = ParallelGrid::kExperts;
  const std::vector<Bucket> expected = {
      {0, 1, {0, 12}, 0}, {1, 2, {12, 36}, 3, ParallelGrid::kExperts}, {2, 3, {36, 72}, 15}};
  EXPECT_EQ(PlanBuckets(units, 1000, {.dense = 4, .experts = 2}), expected);
}

TEST(PlanBucketsTest, OneBucketForEachUnit) {
  const std::vector<Bucket> buckets = PlanBuckets(Units({10, 0, 30}), 0, {});
  ASSERT_EQ(buckets.size(), 3u);
  EXPECT_EQ(buckets[1].range.numel(), 0);
}

/// A store of two units of three and one block of elements, for a rank of a layout.
struct Fixture {
  Fixture(const std::string& layout, int rank)
      : device(MakeCpuDevice(1)), context(MakeMetaContext(ParseLayout(layout, 0), rank)) {
    const auto declare = [this](const std::string& name, int64_t blocks) {
      return &store.Declare({.name = name,
                             .rows = blocks,
                             .columns = kParameterAlignment,
                             .partition = WholePartition(blocks, kParameterAlignment)});
    };
    large = declare("large", 3);
    store.BeginUnit();
    small = declare("small", 1);
    shards.emplace(context, store, *device);
  }

  std::unique_ptr<Device> device;
  ParallelContext context;
  ParameterStore store;
  Parameter* large = nullptr;
  Parameter* small = nullptr;
  std::optional<ParameterShards> shards;
};

constexpr int64_t kBlock = kParameterAlignment;

TEST(ParameterShardsTest, KeepsWhatTheStageSays) {
  const auto kept = [](const std::string& layout) {
    const Fixture fixture(layout, 1);
    return std::array<int64_t, 3>{fixture.shards->weights().numel() / kBlock,
                                  fixture.shards->gradients().numel() / kBlock,
                                  fixture.shards->numel() / kBlock};
  };
  EXPECT_EQ(kept("dp=2"), (std::array<int64_t, 3>{4, 4, 4}));
  // Of 3 + 1 blocks, padded to 4 + 2.
  EXPECT_EQ(kept("dp=2,zero=1"), (std::array<int64_t, 3>{6, 6, 3}));
  EXPECT_EQ(kept("dp=2,zero=2"), (std::array<int64_t, 3>{6, 3, 3}));
  EXPECT_EQ(kept("dp=2,zero=3"), (std::array<int64_t, 3>{3, 3, 3}));
  EXPECT_EQ(kept("dp=4,zero=3,shard=2"), (std::array<int64_t, 3>{3, 3, 3}));
}

TEST(ParameterShardsTest, EveryReplicaOwnsEveryElementOnce) {
  for (const int zero : {1, 2, 3}) {
    for (const auto& [dp, shard] : {std::pair{2, 0}, {3, 0}, {4, 0}, {4, 2}, {6, 3}, {4, 4}}) {
      const int replicas = shard == 0 ? 1 : dp / shard;
      int64_t owned = 0;
      for (int rank = 0; rank < dp; ++rank) {
        const Fixture fixture(fmt::format("dp={},zero={},shard={}", dp, zero, shard), rank);
        EXPECT_EQ(fixture.shards->replica_group(ParallelGrid::kDense).size(), replicas);
        for (const Parameter* parameter : fixture.store.parameters()) {
          const FlatRange range = {parameter->offset, parameter->offset + parameter->numel()};
          const OwnedPart part = fixture.shards->Within(range);
          owned += part.numel;
          EXPECT_GE(part.shard_begin, 0);
          EXPECT_LE(part.shard_begin + part.numel, fixture.shards->numel());
        }
      }
      EXPECT_EQ(owned, 4 * kBlock * replicas) << "zero " << zero << " dp " << dp;
    }
  }
}

}  // namespace
}  // namespace trimtab
