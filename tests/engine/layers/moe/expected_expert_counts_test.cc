// What a dry run takes for the tokens of experts is what choices made in turn come to.
#include "engine/layers/moe/expected_expert_counts.h"

#include <gtest/gtest.h>

#include <numeric>

#include "engine/config/model/model_config.h"
#include "engine/ops/moe/router.h"

namespace trimtab {
namespace {

/// A rank of a layout, with what its layers know.
struct Fixture {
  Fixture(const std::string& layout, int rank)
      : device(MakeCpuDevice(1)), parallel(MakeMetaContext(ParseLayout(layout, 0), rank)) {}

  LayerContext Context(int64_t micro_batch, int64_t sequence, const RoutingConfig& routing) {
    return {.device = *device,
            .parallel = parallel,
            .model = model,
            .micro_batch = micro_batch,
            .sequence = sequence,
            .routing = routing};
  }

  std::unique_ptr<Device> device;
  ParallelContext parallel;
  ModelConfig model;
};

int64_t Sum(const std::vector<int64_t>& values) {
  return std::accumulate(values.begin(), values.end(), int64_t{0});
}

TEST(ExpectedExpertCounts, AreThoseOfChoicesMadeInTurn) {
  constexpr int64_t kMicroBatch = 3;
  constexpr int64_t kSequence = 24;
  const MoeConfig moe = {.num_experts = 7, .router_topk = 3};
  for (const char* layout :
       {"dp=2", "cp=3", "tp=2,sp=1", "tp=4,sp=1,cp=2", "tp=2,sp=1,cp=3,dp=2"}) {
    const auto ranks = static_cast<int>(ParseLayout(layout, 0).world_size());
    for (int rank = 0; rank < ranks; ++rank) {
      Fixture fixture(layout, rank);
      const LayerContext context = fixture.Context(kMicroBatch, kSequence, {.force_balance = true});
      Tensor choice = Tensor::Empty(context.device, {context.tokens(), moe.router_topk},
                                    DType::kI32, MemoryTag::kActivations);
      RouterChooseInTurn(context.row_layout(), moe.num_experts, choice);
      const Tensor own = choice.Rows(context.row_begin(), context.rows());
      std::vector<int64_t> expected(static_cast<size_t>(moe.num_experts));
      for (int64_t i = 0; i < own.numel(); ++i) ++expected[static_cast<size_t>(own.i32()[i])];
      EXPECT_EQ(ExpectedExpertCounts(context, moe, rank), expected) << layout << ", rank " << rank;
    }
  }
}

TEST(ExpectedExpertCounts, AreKnownWhereNoTokenDecides) {
  MoeConfig moe = {.num_experts = 6, .router_topk = 2};
  const auto known = [&moe](const RoutingConfig& routing) {
    Fixture fixture("dp=2", 0);
    return RowsAreKnown(fixture.Context(2, 16, routing), moe);
  };
  EXPECT_FALSE(known({}));
  EXPECT_TRUE(known({.force_balance = true}));
  // In turn 5 or 6 of a sequence come to each expert: ceil(2 * 16 / 6).
  moe.capacity_factor = 1;
  EXPECT_FALSE(known({}));
  EXPECT_TRUE(known({.force_balance = true}));
  moe.capacity_factor = 0.9;
  EXPECT_FALSE(known({.force_balance = true}));
  moe.pad_to_capacity = true;
  EXPECT_TRUE(known({}));
}

TEST(ExpectedExpertCounts, OfUnknownTokensAreAsManyForEach) {
  const MoeConfig moe = {.num_experts = 8, .router_topk = 2};
  Fixture fixture("dp=4,ep=4", 1);
  EXPECT_EQ(ExpectedExpertCounts(fixture.Context(2, 8, {}), moe, 0), std::vector<int64_t>(8, 4));
  // The experts of this rank, 2 and 3, have half as much again, whichever rank the tokens are on.
  const LayerContext uneven = fixture.Context(2, 8, {.imbalance_factor = 1.5});
  for (const int rank : {0, 3}) {
    const std::vector<int64_t> rows = ExpectedExpertCounts(uneven, moe, rank);
    EXPECT_EQ(Sum(rows), 2 * 8 * 2);
    EXPECT_EQ(rows[2], 6);
    EXPECT_EQ(rows[3], 6);
  }
  // More than there are cannot come.
  const LayerContext all = fixture.Context(2, 8, {.imbalance_factor = 100});
  EXPECT_EQ(ExpectedExpertCounts(all, moe, 0), (std::vector<int64_t>{0, 0, 16, 16, 0, 0, 0, 0}));
}

TEST(ExpectedExpertCounts, AreFilledUpToTheCapacity) {
  MoeConfig moe = {.num_experts = 4, .router_topk = 2};
  moe.capacity_factor = 1.5;
  moe.pad_to_capacity = true;
  // 1.5 * 2 * 16 / 4 tokens of a sequence, of which a rank has 8 or, with sp, 4.
  Fixture dense("dp=2", 0);
  EXPECT_EQ(PaddedRows(dense.Context(2, 16, {}), moe), 2 * 12);
  Fixture context_parallel("cp=2", 1);
  EXPECT_EQ(PaddedRows(context_parallel.Context(2, 16, {}), moe), 2 * 8);
  Fixture sequence_parallel("tp=8,sp=1", 1);
  EXPECT_EQ(PaddedRows(sequence_parallel.Context(2, 16, {}), moe), 4);
  EXPECT_EQ(ExpectedExpertCounts(sequence_parallel.Context(2, 16, {}), moe, 5),
            std::vector<int64_t>(4, 4));
}

}  // namespace
}  // namespace trimtab
