#include "engine/train/micro_batch_ids.h"

#include <gtest/gtest.h>

#include <numeric>

namespace trimtab {
namespace {

/// Sample i holds the tokens 100 i, 100 i + 1, ...; documents begin at the offsets of `begins`.
class Counting final : public TokenSource {
 public:
  explicit Counting(std::vector<std::vector<int64_t>> begins) : begins_(std::move(begins)) {}

  void Sample(int64_t index, std::span<int32_t> tokens) const override {
    std::iota(tokens.begin(), tokens.end(), static_cast<int32_t>(100 * index));
  }
  void DocumentBegins(int64_t index, int64_t /*length*/,
                      std::vector<int64_t>& begins) const override {
    const auto& own = begins_[static_cast<size_t>(index)];
    begins.insert(begins.end(), own.begin(), own.end());
  }
  int64_t vocab_size() const override { return 1000; }

 private:
  std::vector<std::vector<int64_t>> begins_;
};

TEST(MicroBatchIds, PositionsBeginAnewAndLastTokensHaveNoTarget) {
  // The second sample ends with a document: the token after it is no target.
  const Counting source({{3, 4}, {8}});
  const MicroBatchIds ids = ReadMicroBatch(source, 0, 8, {2, 8}, /*masks_documents=*/true);
  EXPECT_EQ(ids.tokens, (std::vector<int32_t>{0, 1, 2, 3, 4, 5, 6, 7,  //
                                              100, 101, 102, 103, 104, 105, 106, 107}));
  EXPECT_EQ(ids.positions, (std::vector<int32_t>{0, 1, 2, 0, 0, 1, 2, 3,  //
                                                 0, 1, 2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(ids.targets, (std::vector<int32_t>{1, 2, -1, -1, 5, 6, 7, 8,  //
                                               101, 102, 103, 104, 105, 106, 107, -1}));
  EXPECT_EQ(CountTargets(source, 0, 2, 8, true), 13);
  EXPECT_EQ(CountTargets(source, 1, 1, 8, true), 7);
}

TEST(MicroBatchIds, WithoutAMaskDocumentsDoNotMatter) {
  const Counting source({{3, 4}});
  const MicroBatchIds ids = ReadMicroBatch(source, 0, 4, {1, 4}, /*masks_documents=*/false);
  EXPECT_EQ(ids.targets, (std::vector<int32_t>{1, 2, 3, 4}));
  EXPECT_TRUE(ids.positions.empty());
  EXPECT_EQ(CountTargets(source, 0, 1, 4, false), 4);
}

TEST(MicroBatchIds, OfAContextParallelRankAreThoseOfItsRuns) {
  const Counting source({{3, 7}});
  const MicroBatchIds ids =
      ReadMicroBatch(source, 0, 8, RowLayout::ZigZag(1, 8, 2, 1), /*masks_documents=*/true);
  EXPECT_EQ(ids.tokens, (std::vector<int32_t>{2, 3, 4, 5}));
  EXPECT_EQ(ids.positions, (std::vector<int32_t>{2, 0, 1, 2}));
  EXPECT_EQ(ids.targets, (std::vector<int32_t>{-1, 4, 5, 6}));
}

TEST(MicroBatchIds, AStepWithoutTargetsIsDividedByOne) {
  EXPECT_EQ(CountTargets(Counting({{1, 2}}), 0, 1, 2, true), 1);
}

}  // namespace
}  // namespace trimtab
