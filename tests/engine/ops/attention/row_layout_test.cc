#include "engine/ops/attention/row_layout.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

namespace trimtab {
namespace {

TEST(RowLayout, OfAWholeSequenceAreItsTokens) {
  const RowLayout layout(2, 7);
  EXPECT_EQ(layout.sequence, 7);
  for (int64_t token = 0; token < 7; ++token) EXPECT_EQ(layout.offset(token), token);
  EXPECT_EQ(layout.end_position(), 7);
  EXPECT_EQ(RowLayout::ZigZag(2, 7, 1, 0).end_position(), 7) << "one rank has all of an odd length";
}

TEST(RowLayout, OfRanksPairTheFirstRunsWithTheLast) {
  const RowLayout layout = RowLayout::ZigZag(2, 24, 3, 1);
  std::vector<int64_t> held;
  for (int64_t token = 0; token < layout.sequence; ++token) held.push_back(layout.offset(token));
  EXPECT_EQ(held, (std::vector<int64_t>{4, 5, 6, 7, 16, 17, 18, 19}));
  EXPECT_EQ(layout.end_position(), 20);
}

TEST(RowLayout, OfAllRanksCoverASequenceOnceAndSeeAsMuchEach) {
  for (const int64_t ranks : {2, 3, 4, 8}) {
    const int64_t length = 2 * ranks * 5;
    std::set<int64_t> all;
    for (int64_t rank = 0; rank < ranks; ++rank) {
      const RowLayout layout = RowLayout::ZigZag(2, length, ranks, rank);
      int64_t visible = 0;
      for (int64_t token = 0; token < layout.sequence; ++token) {
        EXPECT_TRUE(all.insert(layout.offset(token)).second);
        visible += layout.offset(token) + 1;
      }
      EXPECT_EQ(visible, length * (length + 1) / 2 / ranks);
    }
    EXPECT_EQ(static_cast<int64_t>(all.size()), length);
    EXPECT_EQ(*all.rbegin(), length - 1);
  }
}

TEST(RowLayout, DoNotTakeLengthsThatDoNotDivide) {
  EXPECT_DEATH(RowLayout::ZigZag(2, 10, 2, 0), "the share of rank 0 of 2 in 10 tokens");
}

TEST(RowLayout, ListedPositionsStandForOffsets) {
  const auto device = MakeCpuDevice(1);
  RowLayout layout(2, 3);
  layout.positions = Tensor::Empty(*device, {6}, DType::kI32, MemoryTag::kActivations);
  CopyFromHost(layout.positions, std::vector<int32_t>{0, 1, 0, 0, 1, 2});
  const RowPositions view = layout.view();
  std::vector<int64_t> positions;
  std::vector<int64_t> offsets;
  for (int64_t row = 0; row < layout.rows(); ++row) {
    positions.push_back(view.of(row));
    offsets.push_back(view.offset(row));
  }
  EXPECT_EQ(positions, (std::vector<int64_t>{0, 1, 0, 0, 1, 2}));
  EXPECT_EQ(offsets, (std::vector<int64_t>{0, 1, 2, 0, 1, 2}));
  EXPECT_EQ(layout.WithoutDocuments().view().of(2), 2);
}

TEST(RowLayout, OfAServingPassHasSegmentsAndTheirBlocks) {
  const auto device = MakeCpuDevice(1);
  const std::vector<std::vector<int32_t>> blocks = {{4}, {7, 2}};
  const RowLayout layout =
      RowLayout::Paged(*device, {{0, 2, 5}, {2, 1, 17}}, blocks, MemoryTag::kActivations);
  EXPECT_EQ(layout.rows(), 3);
  EXPECT_EQ(layout.end_position(), 18);
  EXPECT_EQ(layout.view().of(1), 6);
  EXPECT_EQ(layout.view().of(2), 17);
  EXPECT_EQ(layout.paged->segment_of.i32()[2], 1);
  EXPECT_EQ(layout.paged->blocks.i32()[1], 0) << "filled up";
  EXPECT_EQ(layout.paged->blocks.i32()[3], 2);
}

}  // namespace
}  // namespace trimtab
