#include "engine/schedule/chunks.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace trimtab {
namespace {

std::vector<int64_t> Counts(const std::vector<LayerRange>& ranges) {
  std::vector<int64_t> counts;
  for (const LayerRange& range : ranges) counts.push_back(range.count);
  return counts;
}

using Layers = std::vector<int64_t>;

TEST(CutLayersTest, EvenWhereItCanBe) {
  EXPECT_EQ(Counts(CutLayers(8, 4)), (Layers{2, 2, 2, 2}));
  EXPECT_EQ(Counts(CutLayers(6, 2)), (Layers{3, 3}));
  EXPECT_EQ(Counts(CutLayers(5, 1)), (Layers{5}));
}

TEST(CutLayersTest, EmbeddingAndLossCountAsALayerEach) {
  // Llama 3 405B on 16 stages (arXiv:2407.21783, section 3.3.2: one layer less at both ends).
  Layers llama(16, 8);
  llama.front() = llama.back() = 7;
  EXPECT_EQ(Counts(CutLayers(126, 16)), llama);
  EXPECT_EQ(Counts(CutLayers(5, 4)), (Layers{1, 1, 2, 1}));
  EXPECT_EQ(Counts(CutLayers(3, 2)), (Layers{2, 1}));
  EXPECT_EQ(Counts(CutLayers(2, 4)), (Layers{0, 1, 1, 0}));
}

TEST(CutLayersTest, BalancesEveryCut) {
  for (int64_t layers = 1; layers <= 40; ++layers) {
    for (int64_t chunks = 2; chunks <= layers + 2; ++chunks) {
      const std::vector<LayerRange> ranges = CutLayers(layers, chunks);
      std::vector<int64_t> units = Counts(ranges);
      ++units.front();
      ++units.back();
      const auto [least, most] = std::minmax_element(units.begin(), units.end());
      EXPECT_LE(*most - *least, 1) << layers << " over " << chunks;
      EXPECT_GE(*least, 1);
      int64_t next = 0;
      for (const LayerRange& range : ranges) {
        EXPECT_EQ(range.first, next);
        next += range.count;
        EXPECT_GE(range.count, layers >= chunks ? 1 : 0) << layers << " over " << chunks;
        if (layers % chunks == 0) {
          EXPECT_EQ(range.count, layers / chunks);
        }
      }
      EXPECT_EQ(next, layers);
    }
  }
}

TEST(CutLayersTest, TakesTheCountsGiven) {
  const std::vector<LayerRange> expected = {{0, 1}, {1, 0}, {1, 4}};
  EXPECT_EQ(CutLayers(5, 3, StageLayers(Layers{1, 0, 4})), expected);
}

}  // namespace
}  // namespace trimtab
